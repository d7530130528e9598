"""The arithmetic of the result, on runs that are small enough to be added up by hand.

One file, since every figure of one score is tried on the same runs.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from aiperf.hardware.peak import peak_ops_per_second
from aiperf.journal import events
from aiperf.journal.events import (
    Began,
    Closed,
    Dispatched,
    Ended,
    Event,
    GroupLost,
    LegBegan,
    LegEnded,
    Opened,
    RankReady,
    Released,
    Stepped,
)
from aiperf.journal.replay import Replay
from aiperf.score.credit import credit, work
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
from tests.aiperf.rules.forged import TIMED, evidence, said, together, with_manifest
from tests.journals import DATA, Scene, replayed, told
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
            self.add(0.0, next(event for _, event in HEAD if isinstance(event, Opened)))
        self.add(0.0, LegBegan(index, "", (), tuple((rank + 1,) for rank in range(groups))))
        ready = next(event for _, event in HEAD if isinstance(event, RankReady))
        for group in range(groups):
            rank = replace(ready.ready, rank=group + 1, device=device)
            self.add(0.0, replace(ready, group=group, ready=rank))
        return self.add(0.0, Released(deadline))

    def add(self, t: float, event: Event) -> Script:
        self.replay.add(t, event)
        return self

    def begin(self, trial: int, attempt: int = 1, group: int = 0, t: float = 0.0) -> Script:
        return self.dispatch(trial, attempt, group, t).start(trial, t, attempt)

    def dispatch(self, trial: int, attempt: int = 1, group: int = 0, t: float = 0.0) -> Script:
        given = Trial(trial, None, (), HyperParameters(0.1, 10), 1, 1, 1)
        return self.add(t, Dispatched(given, attempt, group, "key", ZERO, ZERO, ZERO, 10))

    def start(self, trial: int, t: float, attempt: int = 1, built: float = 0.0) -> Script:
        return self.add(t, Began(Started(trial, attempt, "key", built), t))

    def block(
        self, trial: int, end: float, seconds: float, steps: int = 1, segment: int = 0, attempt: int = 1,
        loss: float | None = 1.0,
    ) -> Script:  # fmt: skip
        return self.add(
            end, Stepped(StepBlock(trial, attempt, segment, steps, 10 * steps, seconds, loss), end)
        )

    def close(
        self, trial: int, end: float, seconds: float, steps: int = 1, segment: int = 0, attempt: int = 1,
        skipped: int = 0, correct: int = 15,
    ) -> Script:  # fmt: skip
        found = Segment(
            trial, attempt, segment, steps, 10 * steps, 1.0, Classified(20, correct), seconds, skipped
        )
        return self.add(end, Closed(found, end))

    def end(self, trial: int, t: float, state: State = State.COMPLETE, attempt: int = 1) -> Script:
        return self.add(t, Ended(Finished(trial, attempt, state, ""), t))

    def over(self, end: float, reason: str = "trials") -> Replay:
        for attempt in self.replay.running.values():
            self.end(attempt.trial.number, end, State.STOPPED, attempt.number)
        self.add(end, LegEnded(reason, end))
        assert self.replay.faults == []
        return self.replay

    def operations(self) -> tuple[int, int]:
        """Goodput and raw."""
        credited = credit(self.replay)
        return work(self.replay, COUNTS, credited).operations, work(self.replay, COUNTS).operations


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


def huge(replay: Replay) -> int:
    counts = {0: replace(COUNTED, forward=Ops(mac=10**18 + 1), backward=Ops())}
    return work(replay, counts, credit(replay)).operations


def uncounted(replay: Replay) -> tuple[int, int]:
    found = work(replay, {}, credit(replay))
    return found.operations, found.trained_examples


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
    span, raw OPS are of all steps, and legs add up. Only the regulated score takes half an image for none."""
    comes_to_what_was_read("score.txt", {**globals(), "score": score})
    assert math.copysign(1, regulated(1.0, 10.0)) == 1


def test_the_kinds_of_credited_work_are_counted() -> None:
    script = Script().begin(0).block(0, 2.0, 2.0, steps=4).close(0, 3.0, 1.0, steps=4)
    found = work(script.replay, COUNTS, credit(script.replay))
    assert found.kinds == Ops(mac=40 * 3, add=20)
    assert found.tensor_operations == 40 * 6
    assert (found.steps, found.trained_examples, found.validated_examples, found.segments) == (4, 40, 20, 1)


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
    changed = together(
        with_manifest(synthetic=synthetic), said(events.Tested, tally=Classified(10**6, 10**6))
    )
    seen = evidence(changed(TIMED)).score
    assert seen.regulated_score == pytest.approx(math.log(2 * of) * seen.ops_per_second)


# Control, states, comparison


def test_the_control_is_the_sum_and_the_slowest_with_its_host() -> None:
    replay = replayed(told(Scene(minutes=0, max_trials=1, groups=3)))
    found = score(replay, {}).control
    assert found is not None
    assert (found.devices, found.examples_per_second) == (3, 101.0 + 102.0 + 103.0)
    assert (found.slowest_examples_per_second, found.slowest_host, found.slowest_rank) == (101.0, "node1", 1)
    assert score(Script().over(1.0), COUNTS).control is None


def test_trials_are_numbered_by_their_last_state() -> None:
    script = Script(groups=2).begin(0).end(0, 1.0, State.FAILED).begin(0, attempt=2, t=1.0).begin(1, group=1)
    script.add(2.0, GroupLost(1, "gone"))
    assert {state: num for state, num in score(script.replay, COUNTS).trials.items() if num} == {
        "RUNNING": 1,
        "LOST": 1,
    }


def test_aiperf_1_counts_its_own_network_as_it_did() -> None:
    assert old_count(resnet50_v1()) == OldCount(7_806_583_495, 15_246_874_820)
    depthwise, groups = (chain(layer, GlobalPool()) for layer in (DepthwiseConv2d(), Conv2d(4, groups=4)))
    assert old_count(depthwise) == old_count(groups)


def test_the_column_of_aiperf_1_credits_whole_epochs_of_all_images() -> None:
    assert (DATA["training_examples"], DATA["validation_examples"]) == (200, 400)
    script = Script().begin(0).block(0, 2.0, 2.0, steps=39).close(0, 3.0, 1.0, steps=39)
    found = score(script.over(4.0), COUNTS).aiperf1_ops_per_second  # 390 images: one epoch
    assert found == (400 * 5 + 200 * (5 + 7)) / 4
    without = {0: replace(COUNTED, old=None)}
    assert score(script.replay, without).aiperf1_ops_per_second is None


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
    starts = np.random.RandomState(0).randint(
        0, 31 - 3 + 1, (2000, 11)
    )  # ∛31 is 3; eleven blocks fill 31 bins
    means = [np.concatenate([rates[start : start + 3] for start in row])[:31].mean() for row in starts]
    assert interval_of_mean(rates) == pytest.approx(np.quantile(means, [0.025, 0.975]), rel=1e-12)


def test_the_interval_of_the_mean_covers_it_about_as_often_as_it_says() -> None:
    """Independent normal rates, true mean 100: a moving-block interval of 60 bins is slightly narrow."""
    draw = np.random.RandomState(5)
    hits = 0
    for _ in range(100):
        low, high = interval_of_mean(draw.normal(100, 10, size=60))
        hits += low <= 100 <= high
    assert 85 <= hits <= 99


def test_shares_are_of_the_span_of_each_group_and_stop_at_its_end() -> None:
    script = Script(deadline=10.0, groups=2).begin(0).block(0, 4.0, 4.0).close(0, 6.0, 2.0)
    script.begin(1, group=1, t=6.0).block(1, 9.0, 1.0).close(1, 12.0, 3.0)
    script.add(13.0, LegEnded("deadline", 10.0))
    first, second = shares(script.replay)
    assert (first.group, first.train, first.validate, first.rest) == (0, 0.4, 0.2, pytest.approx(0.4))
    assert (second.group, second.train, second.validate) == (1, 0.1, pytest.approx(0.1))
    assert second.rest == pytest.approx(0.8)
