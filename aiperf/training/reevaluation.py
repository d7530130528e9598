"""`validate --reevaluate`: the best network, from its kept weights, on test and validation images once more.

Weights that were trained on the test images afterwards give the test's answers; those of the validation by
which the network was chosen they give no more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from aiperf.data import Split, load
from aiperf.device import bind
from aiperf.errors import DataError, JournalError
from aiperf.files import RunFiles
from aiperf.journal.replay import Replay
from aiperf.parallel.parallel import Solo
from aiperf.score.lineage import rebuild
from aiperf.training.kept_network import read_kept
from aiperf.training.train import Rank, evaluate
from nas.bounded import file_digest
from nas.modules import Network

# Another device or thread count adds in another order, which may turn an image that lies on the fence.
TOLERATED_SHARE = 0.002


@dataclass(frozen=True)
class Answers:
    """To the images of one part."""

    correct: int
    recorded: int
    of: int

    @property
    def agree(self) -> bool:
        return abs(self.correct - self.recorded) <= max(1, TOLERATED_SHARE * self.of)


@dataclass(frozen=True)
class Reevaluation:
    """What the kept network really does, beside what the journal says."""

    trial: int
    test: Answers
    validation: Answers

    @property
    def agrees(self) -> bool:
        return self.test.agree and self.validation.agree


def reevaluate(replay: Replay, files: RunFiles, kind: str, path: str) -> Reevaluation:
    """`path` is the data's folder here, or empty for the one that the run read.

    Raises JournalError where run, weights and data do not belong together, DataError where one is missing.
    """
    tested = replay.tested
    if tested is None:
        raise JournalError(f"{files.journal}: no network was tested in this run; there is nothing to replay")
    validated = replay.trials[tested.trial].best_validation if tested.trial in replay.trials else None
    if validated is None:
        raise JournalError(f"{files.journal}: trial {tested.trial}, which was tested, was never validated")
    kept_file = files.weights(tested.trial)
    kept = read_kept(kept_file)
    if kept.graph != rebuild(replay, tested.trial):
        raise JournalError(f"{kept_file} holds another architecture than the lineage of trial {tested.trial}")
    ended = replay.trials[tested.trial].attempts[-1].ended
    if ended is None or file_digest(kept_file) != ended.finished.weights:
        raise JournalError(f"{kept_file} is not the file that the journal recorded for trial {tested.trial}")
    config = replay.opened.config
    device = bind(kind, 0)
    device.declare(config.training.format)
    data_config = replace(config.data, path=path) if path else config.data
    data = load(data_config, device.torch, config.random_seed)
    if data.manifest != dict(replay.manifest):
        raise DataError(
            f"the {config.data.name} images here are not those of the run; give the same by --data"
        )
    network = Network(kept.graph)
    network.load(kept.weights)
    network.place(device.torch)
    rank = Rank(device, data, config.training, Solo())

    def answers(split: Split, recorded: int) -> Answers:
        correct, of, _ = evaluate(rank, network, split)
        return Answers(correct, recorded, of)

    in_test, in_validation = tested.correct, validated.segment.correct
    return Reevaluation(tested.trial, answers(data.test, in_test), answers(data.validation, in_validation))
