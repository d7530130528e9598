"""Where the time went, on a journal whose times were written by hand."""

from __future__ import annotations

import pytest

from aiperf.journal.events import GroupLost, LegEnded
from aiperf.journal.replay import Replay
from aiperf.score.credit import credit
from aiperf.wire.trial import State
from analysis.readings.judgement import Judged
from analysis.readings.occupancy import PARTS, Occupancy, occupancy
from tests.aiperf.score.test_score import HEAD, Script
from tests.journals import replayed


def seen(replay: Replay) -> Occupancy:
    assert replay.faults == []
    return occupancy(replay, credit(replay))


def test_every_second_has_one_place() -> None:
    """Group 0: 5 s idle, 5 s until its network was ready, 60 s trained, 5 s validated, 25 s to the end.
    Group 1: at work at once, 20 s not credited as it was lost before it validated, gone for 80 s."""
    script = Script(deadline=100.0, groups=2).begin(1, group=1).dispatch(0, t=5.0).start(0, 10.0, built=5.0)
    script.block(1, 20.0, 20.0).add(25.0, GroupLost(1, "silent"))
    script.block(0, 70.0, 60.0).close(0, 75.0, 5.0).end(0, 75.0).add(100.0, LegEnded("deadline", 100.0))
    found = seen(script.replay)
    assert PARTS == ("train", "validate", "prepare", "wait", "lost")
    assert found.seconds.ravel().tolist() == pytest.approx([60, 5, 5, 30, 0, 0, 0, 0, 0, 100])
    assert [*found.shares.values()] == pytest.approx([0.3, 0.025, 0.025, 0.15, 0.5])
    assert [(bar.trial, bar.begin, bar.end, bar.state) for bar in found.bars] == [
        (1, 0.0, 20.0, State.LOST),
        (0, 10.0, 75.0, State.COMPLETE),
    ]
    assert found.lost == ((1, 20.0, 100.0),)


def test_a_network_that_is_ready_early_costs_nothing() -> None:
    """Prepared beside the trial before: what the gap holds is waiting."""
    script = Script(deadline=100.0).begin(0).dispatch(1, t=1.0)
    script.block(0, 40.0, 40.0).close(0, 42.0, 2.0).end(0, 42.0)
    script.start(1, 45.0, built=4.0).block(1, 90.0, 45.0).close(1, 92.0, 2.0).end(1, 92.0)
    found = seen(script.add(100.0, LegEnded("deadline", 100.0)).replay)
    assert found.seconds[0].tolist() == pytest.approx([85, 4, 0, 11, 0])


def test_shares_add_up_to_the_span_and_agree_with_the_score(judged: Judged) -> None:
    """The score's shares hold all work, ours only what was credited: the difference is lost work."""
    found = occupancy(judged.replay, judged.credit)
    assert found.seconds.sum(axis=1) == pytest.approx(found.span_of_group, rel=1e-9)
    assert sum(found.shares.values()) == pytest.approx(1.0)
    assert (found.seconds >= -1e-9).all()
    for share in judged.score.shares[:3]:
        train, validate, _, _, lost = found.seconds[share.group] / found.span_of_group[share.group]
        assert train + validate + lost == pytest.approx(share.train + share.validate, abs=1e-9)


def test_a_run_that_has_not_been_released_has_no_time() -> None:
    assert seen(replayed(HEAD[:4])).shares == dict.fromkeys(PARTS, 0.0)


def test_a_second_leg_follows_without_a_gap() -> None:
    script = Script(deadline=100.0, groups=2).begin(0).block(0, 40.0, 40.0).close(0, 50.0, 10.0).end(0, 50.0)
    script.over(60.0, "interrupted")
    script.leg(1, 40.0).begin(1).block(1, 30.0, 30.0).close(1, 35.0, 5.0).end(1, 35.0)
    found = seen(script.over(40.0, "deadline"))
    assert [(bar.begin, bar.end) for bar in found.bars] == [(0.0, 50.0), (60.0, 95.0)]
    assert found.span_of_group.tolist() == [100.0, 60.0]
