"""Ranks and legs that never were: devices told twice, a resumed run told as one leg, a deadline moved.

What a careful forger can still do is tested too, and stands in the table of docs/score.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.aiperf.rules.test_falsify_course import replay_of

from aiperf.config import with_overrides
from aiperf.journal.events import (
    CeilingMeasured,
    Closed,
    ControlMeasured,
    Ended,
    GroupLost,
    LegBegan,
    LegEnded,
    Opened,
    RankReady,
    Released,
    Stepped,
)
from aiperf.rules.rule import Kind
from aiperf.trial import State
from aiperf.wire.messages import Finished, Ready
from tests.aiperf.rules.test_falsify import careful, verdict_on
from tests.journals import RELEASE, Scene, Timed, told

TIMED = told(Scene(minutes=0.3, lost=((1, 16.0),)))
# Of one group: what several had in flight was given out again in another order than after losses of groups.
TWO_LEGS = told(Scene(minutes=0.4, killed_at=20.0, groups=1))


def failed(directory: Path, timed: list[Timed]) -> dict[str, str]:
    return {f.rule: f.text for f in verdict_on(directory, careful(timed)).failed(Kind.INTEGRITY)}


def with_ready(timed: list[Timed], change: Callable[[Ready], Ready]) -> list[Timed]:
    return [(t, replace(e, ready=change(e.ready)) if isinstance(e, RankReady) else e) for t, e in timed]


def placed(host: str, device_id: str, visible: int = 1) -> Callable[[Ready], Ready]:
    """`{}` stands for the rank's number."""

    def change(ready: Ready) -> Ready:
        found = {"host": host.format(ready.rank), "device_id": device_id.format(ready.rank)}
        return replace(ready, **found, visible_devices=visible)  # type: ignore[arg-type]

    return change


def only_ranks(directory: Path, timed: list[Timed]) -> str:
    """What the rule `ranks` says: the ceilings and controls still name the hosts of before."""
    return failed(directory, timed).get("ranks", "")


def test_a_device_belongs_to_one_rank(tmp_path: Path) -> None:
    forged = with_ready(TIMED, placed("node1", "GPU-1"))
    assert "rank 1 and rank 2 share device GPU-1 on node1" in only_ranks(tmp_path, forged)


@pytest.mark.parametrize(
    "where",
    [
        placed("node1", ""),  # processors, and what no driver tells apart
        placed("node1", "MIG-{}", visible=2),  # partitions, and a rank that was started again
        placed("node{}", "npu-0"),
        placed("node1", "GPU-{}"),  # the launcher shows each rank its own
    ],
)
def test_devices_of_honest_runs_are_told_apart(tmp_path: Path, where: Callable[[Ready], Ready]) -> None:
    assert only_ranks(tmp_path, with_ready(TIMED, where)) == ""


def test_a_host_has_no_more_ranks_than_devices(tmp_path: Path) -> None:
    timed = told(Scene(minutes=0.1, groups=3))
    assert only_ranks(tmp_path / "3", with_ready(timed, placed("node1", "GPU-{}", visible=3))) == ""
    forged = with_ready(timed, placed("node1", "GPU-{}", visible=2))
    assert only_ranks(tmp_path / "2", forged) == "3 ranks share the 2 devices on node1"


def merged(gap: float, careful_clock: bool) -> list[Timed]:
    """Two legs told as one, in which all groups were lost for `gap` seconds and started again."""
    place = max(place for place, (_, event) in enumerate(TWO_LEGS) if isinstance(event, LegBegan))
    first, second = TWO_LEGS[:place], TWO_LEGS[place + 1 :]
    legs = replay_of(TWO_LEGS).legs
    died = legs[0].last
    assert legs[0].deadline is not None
    assert legs[1].deadline is not None
    shift = legs[0].deadline - legs[1].deadline
    lost: list[Timed] = [(died, GroupLost(0, "was silent for 61 s"))]
    later: list[Timed] = []
    for t, event in second:
        if isinstance(event, CeilingMeasured | ControlMeasured | Released):
            continue
        if isinstance(event, RankReady):
            wall = event.ready.wall_seconds - 3600 + died + gap - t
            ready = replace(event.ready, wall_seconds=wall) if careful_clock else event.ready
            later.append((died + gap, replace(event, ready=ready)))
            continue
        if isinstance(event, Stepped | Closed | Ended | LegEnded) or hasattr(event, "started"):
            event = replace(event, end=event.end + shift)  # type: ignore[call-arg,attr-defined]
        later.append((t + shift, event))
    return [*first, *lost, *later]


def test_a_resumed_run_told_as_one_leg_has_ranks_of_another_time_of_day(tmp_path: Path) -> None:
    """As where an honest host's clock was set: the class is lost, and the run stays valid."""
    assert failed(tmp_path, merged(gap=8.0, careful_clock=False)) == {}
    verdict = verdict_on(tmp_path / "again", careful(merged(gap=8.0, careful_clock=False)))
    (doubt,) = [finding for finding in verdict.unmet if finding.rule == "clocks"]
    assert "rank 1 was ready 35" in doubt.text
    assert "later by the time of day than by leg 0" in doubt.text


def test_nobody_is_ready_sooner_than_it_takes(tmp_path: Path) -> None:
    found = failed(tmp_path, merged(gap=0.5, careful_clock=True))
    assert found == {"ranks": "rank 1 was ready 0.5 s after its start, but its initialisation took 1.5 s"}


def test_whoever_moves_the_time_of_day_too_is_not_seen(tmp_path: Path) -> None:
    """It has cost him the time that groups need to start again. See the table of docs/score.md."""
    assert failed(tmp_path, merged(gap=8.0, careful_clock=True)) == {}


def test_horovod_starts_no_rank_again(tmp_path: Path) -> None:
    timed = [(t, replace(e, backend="horovod") if isinstance(e, LegBegan) else e) for t, e in TIMED]
    assert only_ranks(tmp_path, timed) == "rank 2 was restarted, which Horovod does not allow"


def cut_to_a_deadline(seconds: float) -> list[Timed]:
    """A run that was killed after so many seconds of its span, told as one that was to last so long. What
    was in flight was stopped, it says, and is left where it last validated."""
    long = told(Scene(minutes=2.0, epochs=5000, changes=(("training.validate_every_examples", 60_000),)))
    deadline = RELEASE + seconds
    lines = [(t, event) for t, event in long if t <= deadline]
    replay = replay_of(lines)
    found: list[Timed] = []
    for t, event in lines:
        if isinstance(event, Opened):
            event = replace(event, config=with_overrides(event.config, {"limits.minutes": seconds / 60}))
        elif isinstance(event, Released):
            event = Released(deadline)
        elif isinstance(event, Stepped):
            block = event.block
            (attempt,) = replay.trials[block.trial].attempts
            if block.segment == len(attempt.validations):
                continue  # never validated
        found.append((t, event))
    for attempt in replay.running.values():
        stopped = Finished(attempt.trial.number, attempt.number, State.STOPPED, "the run ended")
        found.append((deadline, Ended(stopped, deadline)))
    found.append((deadline, LegEnded("deadline", deadline)))
    return found


def test_a_killed_run_told_as_one_that_reached_its_deadline_does_not_work_up_to_it(tmp_path: Path) -> None:
    text = failed(tmp_path, cut_to_a_deadline(58.0))["examples"]
    assert "trial 0 was closed at " in text
    assert ", too early in leg 0" in text
