"""`validate --reevaluate`: the best network, from its kept weights, on test and validation data once more.

Weights that were trained on the test examples afterwards give the test's answers; those of the validation by
which the network was chosen they give no more. Networks that a notary's signatures chose are evaluated on the
validation data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from aiperf.engines.engine import Engine, placed
from aiperf.engines.registry import KINDS, why_not
from aiperf.errors import JournalError
from aiperf.journal.attempts import Attempt
from aiperf.journal.mark import refuse_marked
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.journal.spot_checks import chosen_in
from aiperf.parallel.parallel import Solo
from aiperf.tasks.images.tally import Classified
from aiperf.tasks.tally import Tally
from aiperf.training.built_trial import Rank
from aiperf.training.evaluation import Top5, evaluate
from aiperf.training.found_network import find_network, spot_checked_trial
from nas.frozen import frozen
from nas.modules import Network


@frozen
class SecondResult:
    """One part, evaluated a second time."""

    found: Tally
    recorded: Tally
    """What the journal has."""

    @property
    def agrees(self) -> bool:
        """Whether both tallies are equal within what the task allows."""
        return self.found.agrees(self.recorded)


@frozen
class Reevaluation:
    """What the kept network really does, beside what the journal says."""

    trial: int
    test: SecondResult
    validation: SecondResult
    top5: SecondResult | None = None
    """Result of the test; None where the journal has none."""
    spot_checks: Mapping[int, SecondResult] = field(default_factory=dict)
    """Validations of the networks that are kept for spot checks, by trial. They are not part of `agrees`: a
    network that has hardly learnt may answer otherwise on another device."""

    @property
    def agrees(self) -> bool:
        """Whether test, validation, and the five highest answers if they were recorded, are as the journal
        has them."""
        parts = (self.test, self.validation, self.top5)
        return all(part.agrees for part in parts if part is not None)


def spot_checks_of(replay: Replay, files: RunFiles) -> list[int]:
    """The trials that a notary's answers chose and whose weights are here."""
    here = set(files.spot_checked())
    drawn = (each.ending.trial for each in chosen_in(files, replay)) if here else ()
    return sorted(here.intersection(drawn))


def reevaluate(replay: Replay, files: RunFiles, kind: str, path: str) -> Reevaluation:
    """`path` is the data's folder here, or empty for the one that the run read.

    Raises AiperfError for a run that was not measured, JournalError where run, weights and data do not belong
    together, DataError where one is missing. `kind` is that of the device on which the network is evaluated,
    which need not be that of the run.
    """
    refuse_marked(replay.opened.origin, files.directory, "be evaluated again")
    tested = replay.tested
    if tested is None:
        raise JournalError(f"{files.journal}: no network was tested in this run; there is nothing to replay")
    validated = replay.trials[tested.trial].best_validation if tested.trial in replay.trials else None
    if validated is None:
        raise JournalError(f"{files.journal}: trial {tested.trial}, which was tested, was never validated")
    found = find_network(replay, files, tested.trial, kind, path)
    data = found.data
    rank = Rank(found.device, data, found.training, Solo())
    top5 = Top5(found.network, found.device.torch)

    seen, _ = evaluate(rank, found.network, data.test, look=top5.look)
    test = SecondResult(seen, tested.tally)
    validation = _validated(replay, rank, tested.trial, found.network)
    among = None
    if tested.top5 is not None:
        of = tested.tally.of
        among = SecondResult(Classified(of, top5.total(rank) or 0), Classified(of, tested.top5))
    spots = dict[int, SecondResult]()
    for number in spot_checks_of(replay, files):
        kept = spot_checked_trial(replay, files, number)
        network = placed(kept.graph, kept.weights, found.device)
        spots[number] = _validated(replay, rank, number, network)
    return Reevaluation(tested.trial, test, validation, among, spots)


def _validated(replay: Replay, rank: Rank, number: int, network: Network) -> SecondResult:
    """The validation after which a trial's network was kept, made again."""
    attempt = replay.trials[number].attempts[-1]
    assert attempt.best_validation is not None, "its network was kept"
    engine = _engine(attempt, rank, network)
    seen, _ = evaluate(rank, engine.answering(network), rank.data.validation)
    return SecondResult(seen, attempt.best_validation.segment.tally)


def _engine(attempt: Attempt, rank: Rank, network: Network) -> type[Engine]:
    """The one by which a trial was validated, where it can be used here, else the eager one. In 16 bits each
    rounds in its own way, which decides the answers of a network that has hardly learnt."""
    if attempt.began is None or attempt.fallback is not None:
        return Engine
    name = attempt.engine
    return Engine if why_not(name, network.graph, rank.device, rank.training, ranks=1) else KINDS[name]
