"""When work was done: news that was held up, and work that does not fit into the time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from aiperf.journal.events import Closed, Dispatched, Event, Stepped
from aiperf.journal.replay import Replay
from aiperf.rules.rule import Finding, Outcome
from aiperf.rules.verdict import judge
from tests.journals import RELEASE, Scene, told, within

Timed = tuple[float, Event]


def times(timed: list[Timed]) -> Finding:
    replay = Replay()
    for t, event in timed:
        replay.add(t, event)
    (finding,) = [finding for finding in judge(replay, None).findings if finding.rule == "times"]
    return finding


def of_one_trial(change: Callable[[float, Event], Timed], group: int = 0) -> list[Timed]:
    """A run of a minute whose first trials last all of it; every block and validation of one, changed."""
    timed = told(Scene(minutes=1.0, epochs=5000))
    number = next(e.trial.number for _, e in timed if isinstance(e, Dispatched) and e.group == group)

    def of_it(event: Event) -> bool:
        if isinstance(event, Closed):
            return event.segment.trial == number
        return isinstance(event, Stepped) and event.block.trial == number

    changed = [change(t, event) if of_it(event) else (t, event) for t, event in timed]
    return sorted(changed, key=lambda line: line[0])


def test_news_that_the_network_held_up_is_no_contradiction() -> None:
    """A cable is pulled for 20 s; then all that was done meanwhile is told at once."""
    first = RELEASE + 20.0

    def held_up(t: float, event: Event) -> Timed:
        late = max(0.0, first + 20.0 - t) if t > first else 0.0
        return t + late, replace(event, end=event.end + late)  # type: ignore[call-arg,attr-defined]

    assert times(of_one_trial(held_up)).outcome is Outcome.PASSED


def test_a_group_that_does_two_things_at_once_without_having_been_silent_is_named() -> None:
    """As where blocks are made longer in the half of a run in which nobody has spared seconds."""

    def shifted(t: float, event: Event) -> Timed:
        if isinstance(event, Stepped):
            return t, within(event, seconds=event.block.seconds * (0.5 if t < RELEASE + 30 else 1.45))
        return t, event

    finding = times(of_one_trial(shifted))
    assert finding.outcome is Outcome.FAILED
    assert finding.text == "group 0 worked on two things at once in leg 0"
