"""Many groups end a trial at the same moment."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from aiperf.journal.events import Dispatched, Ended
from aiperf.run.group import AHEAD
from aiperf.run.master import Master
from aiperf.trial import State
from aiperf.wire import messages
from aiperf.wire.messages import FromGroup, ToGroup
from tests.aiperf.groups import Obedient
from tests.aiperf.legs import Run

GROUPS = 8


@dataclass
class AtOnce:
    """Each group waits until all have `per_group` trials; then each tells of all of one, and of no other."""

    per_group: int
    groups: tuple[tuple[int, ...], ...] = tuple((rank,) for rank in range(1, 1 + GROUPS))
    waiting: deque[tuple[int, FromGroup]] = field(default_factory=deque)
    told: bool = False

    def __post_init__(self) -> None:
        self.assigned = [deque[messages.Assign]() for _ in self.groups]
        self.workers = [
            Obedient(index, ranks, lambda said, index=index: self.waiting.append((index, said)))  # type: ignore
            for index, ranks in enumerate(self.groups)
        ]

    def send(self, group: int, message: ToGroup) -> None:
        worker = self.workers[group]
        if isinstance(message, messages.Setup):
            worker.set_up()
        elif isinstance(message, messages.MeasureCeiling):
            worker.ceiling()
        elif isinstance(message, messages.MeasureControl):
            worker.control()
        elif isinstance(message, messages.Evaluate):
            worker.evaluate(message)
        elif isinstance(message, messages.Assign):
            self.assigned[group].append(message)
            if self.told or all(len(each) >= self.per_group for each in self.assigned):
                self._end()

    def _end(self) -> None:
        """All that were held back, or the one that came late."""
        self.told = True
        for index, trials in enumerate(self.assigned):
            if trials:
                self.workers[index].train(trials.popleft())

    def send_all(self, message: ToGroup) -> None:
        for index in range(GROUPS):
            self.send(index, message)

    def receive(self, seconds: float) -> tuple[int, FromGroup] | None:
        return self.waiting.popleft() if self.waiting else None

    def restart(self, group: int) -> bool:
        return False

    def close(self) -> None: ...


def set_ahead(master: Master, per_group: int) -> None:
    """From the beginning, as it is after the first trial of each."""
    for group in master.groups.each:
        group.ahead = per_group


def ended_and_dispatched(per_group: int, directory: Path) -> str:
    """E and D in the order of the journal."""
    run = Run(directory, AtOnce(per_group), max_trials=4 * GROUPS)
    run.before = lambda master: set_ahead(master, per_group)
    told = run.go()
    assert {story.state for story in told.trials.values()} == {State.COMPLETE}
    kinds = {Dispatched: "D", Ended: "E"}
    return "".join(kinds[type(each)] for each in told.decisions if type(each) in kinds)  # type: ignore[index]


def test_all_that_ended_is_heard_before_anything_is_proposed(tmp_path: Path) -> None:
    order = ended_and_dispatched(AHEAD, tmp_path)
    first = AHEAD * GROUPS * "D"
    assert order.startswith(first + GROUPS * "E")


def test_a_group_without_a_trial_does_not_wait_for_what_others_say(tmp_path: Path) -> None:
    order = ended_and_dispatched(1, tmp_path)
    assert order.startswith(GROUPS * "D")
    assert "ED" in order[: GROUPS + 4]
