"""`validate --reevaluate`: the best network, from its kept weights, on test and validation data once more.

Weights that were trained on the test examples afterwards give the test's answers; those of the validation by
which the network was chosen they give no more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from aiperf.data import Split, load
from aiperf.device import bind
from aiperf.errors import DataError, JournalError
from aiperf.files import RunFiles
from aiperf.journal.mark import refuse_marked
from aiperf.journal.replay import Replay
from aiperf.parallel.parallel import Solo
from aiperf.tally import Classified, Tally
from aiperf.tasks.known import task_of
from aiperf.training.built_trial import Rank
from aiperf.training.evaluation import Look, Top5, evaluate
from aiperf.training.kept_trial import kept_trial
from nas.modules import Network


@dataclass(frozen=True)
class Again:
    """One part, evaluated a second time."""

    found: Tally
    recorded: Tally

    @property
    def agrees(self) -> bool:
        return self.found.agrees(self.recorded)


@dataclass(frozen=True)
class Reevaluation:
    """What the kept network really does, beside what the journal says."""

    trial: int
    test: Again
    validation: Again
    top5: Again | None = None
    """Of the test; None where the journal has none."""

    @property
    def agrees(self) -> bool:
        parts = (self.test, self.validation, self.top5)
        return all(part.agrees for part in parts if part is not None)


def reevaluate(replay: Replay, files: RunFiles, kind: str, path: str) -> Reevaluation:
    """`path` is the data's folder here, or empty for the one that the run read.

    Raises AiperfError for a run that was not measured, JournalError where run, weights and data do not belong
    together, DataError where one is missing.
    """
    refuse_marked(replay.opened.origin, files.directory, "be evaluated again")
    tested = replay.tested
    if tested is None:
        raise JournalError(f"{files.journal}: no network was tested in this run; there is nothing to replay")
    validated = replay.trials[tested.trial].best_validation if tested.trial in replay.trials else None
    if validated is None:
        raise JournalError(f"{files.journal}: trial {tested.trial}, which was tested, was never validated")
    kept = kept_trial(replay, files, tested.trial)
    config = replay.opened.config
    device = bind(kind, 0)
    device.declare(config.training.format)
    data_config = replace(config.data, path=path or config.data.path, stage="")
    data = load(data_config, device.torch, config.random_seed)
    if data.manifest != dict(replay.manifest):
        raise DataError(
            f"the {config.data.name} {task_of(config.data).example}s here are not those of the run; give the "
            "same by --data"
        )
    network = Network(kept.graph)
    network.load(kept.weights)
    network.place(device.torch)
    rank = Rank(device, data, config.training, Solo())

    top5 = Top5(network, device.torch)

    def again(split: Split, recorded: Tally, look: Look = lambda outputs, targets: None) -> Again:
        found, _ = evaluate(rank, network, split, look=look)
        return Again(found, recorded)

    test = again(data.test, tested.tally, top5.look)
    validation = again(data.validation, validated.segment.tally)
    among = None
    if tested.top5 is not None:
        of = tested.tally.of
        among = Again(Classified(of, top5.total(rank) or 0), Classified(of, tested.top5))
    return Reevaluation(tested.trial, test, validation, among)
