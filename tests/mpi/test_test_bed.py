"""The test bed of searches in the order of a real run: the same proposals and the same segments.

Which message the master takes next, and when it takes none and proposes, is all that time decides in a run.
Given that order, the virtual groups must come to what the ranks came to.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path

import pytest

from aiperf.config import Config
from aiperf.journal.events import Began, Closed, Dispatched, Ended, Event, Released
from aiperf.journal.file import read_journal
from aiperf.journal.replay import replay
from aiperf.journal.run_files import RunFiles
from aiperf.ranks.world import Gone
from aiperf.wire.messages import Assign, NextWanted, Steps, ToGroup, Validated
from aiperf.wire.reports import Finished, FromGroup, Started
from benchmarks.trained_world import TrainingWorld, train_in
from tests.mpi.checked import finished
from tests.mpi.jobs import OPEN_MPI, started, tiny

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(900)]

TRIALS = 8
Said = tuple[type[FromGroup], int, int]
"""A message of a group by its kind, its trial and its segment."""


def events(directory: Path) -> list[Event]:
    return [line.event for line in read_journal(RunFiles(directory).journal)]


def said(message: FromGroup | Gone) -> Said | None:
    if isinstance(message, Validated):
        return Validated, message.segment.trial, message.segment.index
    if isinstance(message, Started | NextWanted | Finished):
        return type(message), message.trial, 0
    return None


def belongs(steps: Steps, wanted: Said) -> bool:
    """Whether these steps come before that message: a validation closes its own, an end all of its trial."""
    kind, trial, segment = wanted
    closed = kind is Validated and steps.block.segment == segment
    return steps.block.trial == trial and (closed or kind is Finished)


class InOrder(TrainingWorld):
    """The messages after the release are taken in a recorded order, wherever the virtual clock is."""

    def __init__(self, config: Config, groups: int, recorded: list[Event]) -> None:
        super().__init__(config, groups)
        self.order = deque[Said | None]()
        """What comes next: a message, or None for a proposal. Before one for a group that has a trial, the
        group wanted its next."""
        last = dict[int, int]()  # trial of each group that has not ended
        for event in recorded:
            if isinstance(event, Released):
                self.order.clear()
            elif isinstance(event, Dispatched):
                if event.group in last:
                    self.order.append((NextWanted, last[event.group], 0))
                last[event.group] = event.trial.number
                self.order.append(None)
            elif isinstance(event, Began):
                self.order.append((Started, event.started.trial, 0))
            elif isinstance(event, Closed):
                self.order.append((Validated, event.segment.trial, event.segment.index))
            elif isinstance(event, Ended):
                self.order.append((Finished, event.finished.trial, 0))
                last = {group: trial for group, trial in last.items() if trial != event.finished.trial}
        self.released, self.waiting = False, list[tuple[int, FromGroup | Gone]]()

    def send(self, group: int, message: ToGroup) -> None:
        if isinstance(message, Assign):
            assert self.order.popleft() is None, f"trial {message.trial.number} is proposed too early"
            self.released = True
        super().send(group, message)

    def receive(self, seconds: float) -> tuple[int, FromGroup | Gone] | None:
        if not self.released or not self.order:
            return super().receive(seconds)
        wanted = self.order[0]
        if wanted is None:
            self.clock.hear_nothing(self.clock.now)
            return None
        while all(said(message) != wanted for _, message in self.waiting):
            heard = super().receive(1.0)
            if heard is not None:
                self.waiting.append(heard)
        for index, (_, message) in enumerate(self.waiting):
            steps = isinstance(message, Steps) and belongs(message, wanted)
            if steps or said(message) == wanted:
                if not steps:
                    self.order.popleft()
                return self.waiting.pop(index)
        raise AssertionError(wanted)


def proposals(recorded: list[Event]) -> list[Dispatched]:
    return [event for event in recorded if isinstance(event, Dispatched)]


def segments(recorded: list[Event]) -> list[object]:
    """Without their times."""
    closed = [event.segment for event in recorded if isinstance(event, Closed)]
    return [(s.trial, s.attempt, s.index, s.steps, s.train_examples, s.tally) for s in closed]


@pytest.mark.parametrize("groups", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_a_recorded_order_gives_the_proposals_and_segments_of_the_ranks(
    groups: int, directory: Path, tmp_path: Path
) -> None:
    """Under one MPI: none of what is compared depends on it."""
    more = ("--devices-per-trial", 1, "--max-trials", TRIALS, "--set", "training.step=eager")
    with started(OPEN_MPI.run(1 + groups, *tiny(directory, 0, *more)), directory) as job:
        config = finished(job).opened.config
    real = events(directory)
    train_in(InOrder(config, groups, real), config, tmp_path / "bed", ("bed",))
    bed = events(tmp_path / "bed")
    assert replay(read_journal(RunFiles(tmp_path / "bed").journal)).faults == []
    assert proposals(bed) == proposals(real)
    assert segments(bed) == segments(real)
    assert len({group.group for group in proposals(real)}) == groups
