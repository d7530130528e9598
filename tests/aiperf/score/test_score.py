"""The arithmetic of the result, on runs that are small enough to be added up by hand.

One file, since every figure of one score is tried on the same runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple, replace

import numpy as np
import pytest

from aiperf.hardware.peak import peak_ops_per_second
from aiperf.journal import events
from aiperf.journal.events import Event, GroupLost, LegEnded
from aiperf.journal.replay import Replay
from aiperf.score.credit import Work, credit, work
from aiperf.score.example_counts import Counted, OldCount, old_count
from aiperf.score.lineage import recount
from aiperf.score.score import Score, regulated, score
from aiperf.score.timeline import Timeline, drawn, interval_of_mean, shares, timeline
from aiperf.tasks.images.tally import Classified
from aiperf.wire.reports import Evaluated, Finished, Started
from aiperf.wire.trial import HyperParameters, Segment, State, StepBlock, Trial
from nas.layers import Conv2d, DepthwiseConv2d, GlobalPool
from nas.ops import Ops
from nas.seeds import resnet50_v1
from tests.aiperf.rules.forged import TIMED, evidence, one, said, together, with_manifest
from tests.journals import DATA, Scene, replayed, told, within
from tests.nas.graphs import chain
from tests.tables import ComesTo

# One training image costs 2 · (1 + 2) = 6 operations, one validated image 1.
COUNTED = Counted("key", Ops(mac=1), Ops(mac=2), Ops(add=1), 10, OldCount(5, 7))
COUNTS = dict.fromkeys(range(9), COUNTED)
HEAD = told(Scene(minutes=0, max_trials=1))
ZERO = (0,) * 7


class Script:
    """A run written down event by event; the clock of the only leg begins at 0."""

    def __init__(self, deadline: float | None = None, groups: int = 1, device: str = "NVIDIA H200") -> None:
        self.replay = Replay()
        self.leg(0, deadline, groups, device)

    def leg(self, index: int, deadline: float | None, groups: int = 1, device: str = "NVIDIA H200") -> Script:
        if index == 0:
            self.add(0.0, one(events.Opened, HEAD))
        self.add(0.0, events.LegBegan(index, "", (), tuple((rank + 1,) for rank in range(groups))))
        for group in range(groups):
            ready = within(one(events.RankReady, HEAD), rank=group + 1, device=device)
            self.add(0.0, replace(ready, group=group))
        return self.add(0.0, events.Released(deadline))

    def add(self, t: float, event: Event) -> Script:
        self.replay.add(t, event)
        return self

    def begin(self, trial: int, attempt: int = 1, group: int = 0, t: float = 0.0) -> Script:
        return self.dispatch(trial, attempt, group, t).start(trial, t, attempt)

    def dispatch(self, trial: int, attempt: int = 1, group: int = 0, t: float = 0.0) -> Script:
        given = Trial(trial, None, (), HyperParameters(0.1, 10), 1, 1, 1)
        return self.add(t, events.Dispatched(given, attempt, group, "key", ZERO, ZERO, ZERO, 10))

    def start(self, trial: int, t: float, attempt: int = 1, built: float = 0.0) -> Script:
        return self.add(t, events.Began(Started(trial, attempt, "key", built), t))

    def block(
        self, trial: int, end: float, seconds: float, steps: int = 1, segment: int = 0, attempt: int = 1,
        loss: float | None = 1.0,
    ) -> Script:  # fmt: skip
        block = StepBlock(trial, attempt, segment, steps, 10 * steps, seconds, loss)
        return self.add(end, events.Stepped(block, end))

    def close(
        self, trial: int, end: float, seconds: float, steps: int = 1, segment: int = 0, attempt: int = 1,
        skipped: int = 0, correct: int = 15,
    ) -> Script:  # fmt: skip
        tally = Classified(20, correct)
        found = Segment(trial, attempt, segment, steps, 10 * steps, 1.0, tally, seconds, skipped)
        return self.add(end, events.Closed(found, end))

    def end(self, trial: int, t: float, state: State = State.COMPLETE, attempt: int = 1) -> Script:
        return self.add(t, events.Ended(Finished(trial, attempt, state, ""), t))

    def over(self, end: float, reason: str = "trials") -> Replay:
        for attempt in self.replay.running.values():
            self.end(attempt.trial.number, end, State.STOPPED, attempt.number)
        self.add(end, LegEnded(reason, end))
        assert self.replay.faults == []
        return self.replay

    def operations(self) -> tuple[int, int]:
        """Goodput and raw."""
        return self.goodput().operations, work(self.replay, COUNTS).operations

    def goodput(self, counts: Mapping[int, Counted] = COUNTS) -> Work:
        return work(self.replay, counts, credit(self.replay))


# Credit


def validated(deadline: float | None = None, end: float = 2.0) -> Script:
    """One step of ten images, 60 operations, and a validation of 20 images, 20 operations."""
    return Script(deadline).begin(0).block(0, 1.0, 1.0).close(0, end, 1.0)


def and_one_step_more() -> Script:
    return validated().block(0, 3.0, 1.0, segment=1)


def again(script: Script, t: float = 3.0) -> Script:
    """The same step and validation in a second attempt."""
    return script.begin(0, attempt=2, t=t).block(0, t + 1, 1.0, attempt=2).close(0, t + 2, 1.0, attempt=2)


def not_applied(loss: float | None, skipped: int) -> Script:
    script = Script().begin(0).block(0, 0.5, 0.5).block(0, 1.0, 0.5, loss=loss)
    return script.close(0, 2.0, 1.0, steps=2, skipped=skipped)


def failed(script: Script) -> Script:
    return script.end(0, 2.5, State.FAILED)


def steps(num: int) -> Script:
    return Script().begin(0).block(0, 2.0, 2.0, steps=num).close(0, 3.0, 1.0, steps=num)


HUGE = {0: replace(COUNTED, forward=Ops(mac=10**18 + 1), backward=Ops())}
UNEQUAL = [chain(layer, GlobalPool()) for layer in (DepthwiseConv2d(), Conv2d(4, groups=4))]


def two_legs() -> Replay:
    script = validated().end(0, 2.0)
    script.over(4.0)
    script.leg(1, None).begin(1).block(1, 1.0, 1.0).close(1, 2.0, 1.0).end(1, 2.0)
    return script.over(6.0)


def rates(replay: Replay) -> tuple[float | None, ...]:
    found = score(replay, COUNTS)
    ops = found.ops_per_second, found.raw_ops_per_second, found.tensor_ops_per_second
    return found.legs, found.span_seconds, *ops


def mfu(replay: Replay) -> tuple[float | None, ...]:
    found = score(replay, COUNTS)
    return found.peak_ops_per_second, found.mfu


def after_test(correct: int) -> Score:
    script = validated().end(0, 2.0).add(8.0, LegEnded("trials", 8.0))
    tested = events.Tested(Evaluated(0, Classified(100, correct), 1.0))
    return score(script.add(9.0, tested).replay, COUNTS)


def quality(found: Score) -> tuple[object, ...]:
    """The error of the validation and of the test, and e to the regulated score ÷ OPS, which is 1 ÷ error."""
    assert found.quality is not None
    regulated, ops = found.regulated_score, found.ops_per_second
    inverse = None if regulated is None else round(math.exp(regulated / ops), 9)
    return found.quality.validation_error, found.quality.error, found.quality.error_is_bound, inverse


def test_a_score_by_hand(comes_to_what_was_read: ComesTo) -> None:
    """A closed segment credits its steps and its validation once. Sustained OPS are goodput over the whole
    span, raw OPS are of all steps, and legs add up. Only the regulated score takes half an image for none.
    The column of AIPerf 1 credits whole epochs of all images, by the operations that it counted."""
    names = {"score": score, "DATA": DATA, "old_count": old_count, "resnet50_v1": resnet50_v1}
    comes_to_what_was_read("score.txt", {**globals(), **names})
    assert math.copysign(1, regulated(1.0, 10.0)) == 1


def test_work_before_the_release_credits_nothing() -> None:
    script = validated()
    script.replay.leg.released = None
    assert script.operations() == (0, 80)


# Span and rates


def test_utilisation_is_of_the_devices_of_each_leg_and_of_a_group_that_came_back_once() -> None:
    script = Script(deadline=10.0)
    script.over(10.0, "deadline")
    script.leg(1, 30.0, device="NVIDIA A100-SXM4-80GB")
    script.add(1.0, GroupLost(0, "killed"))
    (ready,) = script.replay.ranks
    script.add(2.0, ready)
    peaks = [peak_ops_per_second(name, "bf16", 0) for name in ("NVIDIA H200", "NVIDIA A100-SXM4-80GB")]
    found = score(script.over(30.0, "deadline"), COUNTS)
    assert found.peak_ops_per_second == pytest.approx((10 * peaks[0] + 30 * peaks[1]) / 40)


# Quality


@pytest.mark.parametrize(("synthetic", "of"), [(True, 400), (False, 10**6)])
def test_a_larger_test_of_generated_examples_is_worth_nothing(synthetic: bool, of: int) -> None:
    """It is made after the span, so it costs nothing."""
    right = said(events.Tested, tally=Classified(10**6, 10**6))
    seen = evidence(together(with_manifest(synthetic=synthetic), right)(TIMED)).score
    assert seen.regulated_score == pytest.approx(math.log(2 * of) * seen.ops_per_second)


# Timeline and shares


def test_operations_lie_at_the_end_of_their_step() -> None:
    """60 bins of one second; a block of four steps from 0.5 to 4.5 s ends one step in each of four bins."""
    script = Script(deadline=60.0).begin(0).block(0, 4.5, 4.0, steps=4).close(0, 10.5, 2.0, steps=4)
    script.add(60.0, LegEnded("deadline", 60.0))
    found = line(script.replay)
    assert found.bin_seconds == 1.0
    expected = [0.0] * 60
    expected[1:5] = [60.0] * 4
    expected[9:11] = [10.0, 10.0]  # the batches of the validation: two of ten images
    assert list(found.ops_per_second) == expected
    assert found.variation == pytest.approx(224.556**0.5 / (260 / 60), rel=1e-5)  # √(E[x²] − E[x]²) / E[x]


def line(replay: Replay) -> Timeline:
    return timeline(replay, COUNTS, credit(replay).pieces)


def test_the_timeline_holds_all_goodput_however_steps_lie() -> None:
    replay = replayed(told(Scene(minutes=0.4, killed_at=20.0, lost=((1, 15.0),))))
    counts = recount(replay).counts
    found = timeline(replay, counts, credit(replay).pieces)
    goodput = work(replay, counts, credit(replay)).operations
    assert sum(found.ops_per_second) * found.bin_seconds == pytest.approx(goodput, rel=1e-9)


def test_bins_of_a_long_run_are_six_minutes_and_the_last_one_is_over_its_own_length() -> None:
    script = Script(deadline=360.0 * 60 + 180.0).begin(0)
    script.block(0, 21700.0, 10.0).close(0, 21750.0, 5.0)
    script.add(21780.0, LegEnded("deadline", 21780.0))
    found = line(script.replay)
    assert (found.bin_seconds, len(found.ops_per_second)) == (360.0, 61)
    assert found.ops_per_second[-1] == pytest.approx(80 / 180)
    assert found.variation is None  # the last, shorter bin is no measure of evenness


def test_bins_of_a_leg_follow_those_of_the_leg_before() -> None:
    script = Script(deadline=None).begin(0).block(0, 1.0, 1.0).close(0, 2.0, 0.5).end(0, 2.0)
    script.over(30.0)
    script.leg(1, None)
    script.begin(1).block(1, 1.5, 1.0).close(1, 2.0, 0.5)
    found = line(script.over(30.0))
    assert [place for place, rate in enumerate(found.ops_per_second) if rate] == [1, 2, 31, 32]


def test_the_stable_window_is_where_nearly_all_groups_work() -> None:
    """Two groups, and bins of two seconds: the second group begins at 20 s and stops at 80 s."""
    script = Script(deadline=120.0, groups=2).begin(0).begin(1, group=1, t=20.0)
    script.block(1, 79.0, 58.0, steps=29).block(0, 118.0, 117.0, steps=58)
    script.close(1, 80.0, 1.0, steps=29).close(0, 119.0, 1.0, steps=58)
    script.add(120.0, LegEnded("deadline", 120.0))
    found = line(script.replay)
    assert (found.stable_from_seconds, found.stable_to_seconds) == (20.0, 82.0)
    rates = found.ops_per_second[10:41]
    assert found.stable_ops_per_second == pytest.approx(sum(rates) / 31)
    assert found.stable_interval is not None
    low, high = found.stable_interval
    assert low <= found.stable_ops_per_second <= high
    assert line(script.replay) == found  # the bootstrap draws the same again


@pytest.mark.parametrize(("below", "num"), [(1, 3), (2, 9), (57, 30_000), (64, 5), (65, 5), (9_979, 999)])
def test_the_bootstrap_draws_what_numpy_draws(below: int, num: int) -> None:
    assert drawn(below, num).tolist() == np.random.RandomState(0).randint(0, below, num).tolist()


def test_the_interval_of_the_mean_is_of_blocks_that_are_drawn_whole() -> None:
    rates = np.random.RandomState(1).normal(100, 10, size=31)
    starts = np.random.RandomState(0).randint(0, 31 - 3 + 1, (2000, 11))  # ∛31 is 3; 11 blocks fill 31 bins
    means = [np.concatenate([rates[start : start + 3] for start in row])[:31].mean() for row in starts]
    assert interval_of_mean(rates) == pytest.approx(np.quantile(means, [0.025, 0.975]), rel=1e-12)


def test_the_interval_of_the_mean_covers_it_about_as_often_as_it_says() -> None:
    """Independent normal rates, true mean 100: a moving-block interval of 60 bins is slightly narrow."""
    draw = np.random.RandomState(5)
    intervals = [interval_of_mean(draw.normal(100, 10, size=60)) for _ in range(100)]
    assert 85 <= sum(low <= 100 <= high for low, high in intervals) <= 99


def test_shares_are_of_the_span_of_each_group_and_stop_at_its_end() -> None:
    script = Script(deadline=10.0, groups=2).begin(0).block(0, 4.0, 4.0).close(0, 6.0, 2.0)
    script.begin(1, group=1, t=6.0).block(1, 9.0, 1.0).close(1, 12.0, 3.0)
    script.add(13.0, LegEnded("deadline", 10.0))
    found = [astuple(each) for each in shares(script.replay)]
    assert found == [pytest.approx((0, 0.4, 0.2, 0.4)), pytest.approx((1, 0.1, 0.1, 0.8))]
