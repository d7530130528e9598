"""The result of a run: a function of its replay and of its architectures, counted from their lineage."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from aiperf.hardware.peak import peak_ops_per_second
from aiperf.journal.attempts import Leg
from aiperf.journal.replay import Replay
from aiperf.score.credit import Credit, Work, credit, work
from aiperf.score.example_counts import Counted
from aiperf.score.rungs import comparable, controls_of
from aiperf.score.timeline import Shares, Timeline, shares, timeline
from aiperf.tasks.registry import task_of
from aiperf.tasks.tally import Tally
from aiperf.wire.trial import State
from nas.frozen import frozen
from nas.record import encode


@frozen
class Quality:
    """The best network on validation, and its error on the test examples."""

    trial: int
    validation_error: float
    test: Tally | None
    """Result on the test part; None before the test."""
    error: float | None
    """Error on the test part."""
    error_is_bound: bool
    """Whether no answer was wrong, so that the score takes `Tally.floor` instead: −ln(0) is infinite."""


@frozen
class ControlResult:
    """Rate of the control network on all devices, before the span."""

    devices: int
    examples_per_second: float
    """Sum of the rates of all devices."""
    slowest_examples_per_second: float
    slowest_host: str
    slowest_rank: int


@frozen
class Score:
    """The figures of a run. Figures that are unknown are None."""

    span_seconds: float
    legs: int
    goodput: Work
    raw: Work
    ops_per_second: float
    """Sustained OPS: credited operations over the span."""
    tensor_ops_per_second: float
    raw_ops_per_second: float
    peak_ops_per_second: float | None
    """Sum of the dense peaks of all devices in the declared format."""
    mfu: float | None
    quality: Quality | None
    regulated_score: float | None
    """−ln(error) · sustained OPS."""
    trials: Mapping[str, int]
    """Number of trials by state."""
    control: ControlResult | None
    shares: tuple[Shares, ...]
    timeline: Timeline
    aiperf1_ops_per_second: float | None
    """Rate as AIPerf 1.0 would count the same run, for comparison with its published results; it is not a
    score. None for a task that it did not have."""


def score(replay: Replay, counts: Mapping[int, Counted], credited: Credit | None = None) -> Score:
    """The figures of a run. `counts` are those of `lineage.recount`, by trial number; during a run those that
    are recorded.

    `credited` is the result of `credit` for this replay, if it is known already.
    """
    if credited is None:
        credited = credit(replay)
    goodput, raw = work(replay, counts, credited), work(replay, counts)
    span = replay.span_seconds
    quality = _quality(replay)
    ops = _rate(goodput.operations, span)
    available = _available(replay)
    return Score(
        span_seconds=span,
        legs=replay.num_legs,
        goodput=goodput,
        raw=raw,
        ops_per_second=ops,
        tensor_ops_per_second=_rate(goodput.tensor_operations, span),
        raw_ops_per_second=_rate(raw.operations, span),
        peak_ops_per_second=None if available is None else _rate(available, span),
        mfu=goodput.tensor_operations / available if available else None,
        quality=quality,
        regulated_score=_regulated(replay, quality, ops),
        trials=_by_state(replay),
        control=_control(replay),
        shares=shares(replay),
        timeline=timeline(replay, counts, credited.pieces),
        aiperf1_ops_per_second=_aiperf1(replay, counts, credited, span),
    )


def record_of(score: Score) -> dict[str, Any]:
    """The figures as a JSON object, with operations by the names of their kinds."""
    record: dict[str, Any] = encode(score)
    for name, done in (("goodput", score.goodput), ("raw", score.raw)):
        record[name]["kinds"] = done.kinds._asdict()
    return record


def regulated(error: float, ops_per_second: float) -> float:
    """Regulated score (Ren et al., "AIPerf", 2021). Because of the logarithm each halving of the error is
    worth the same, and an error of 1 is worth nothing."""
    return max(0.0, -math.log(error)) * ops_per_second


def error_bound(replay: Replay, quality: Quality) -> Tally | None:
    """The result whose number of examples stands for an error of 0 in the regulated score: that of the test,
    or of the best validation if that has fewer and the examples are generated. None if some answer was wrong.

    A test of generated examples can have any size at no cost, because it is made after the span.
    """
    if quality.test is None or not quality.error_is_bound:
        return None
    best = replay.best
    validation = best.best_validation if best and replay.manifest.get("synthetic") is True else None
    tallies = [quality.test] if validation is None else [quality.test, validation.segment.tally]
    return max(tallies, key=lambda tally: tally.floor)


def _regulated(replay: Replay, quality: Quality | None, ops_per_second: float) -> float | None:
    """Regulated score; None without an error, and for more correct answers than examples, which `validate`
    reports."""
    if quality is None:
        return None
    bound = error_bound(replay, quality)
    error = quality.error if bound is None else bound.floor
    return regulated(error, ops_per_second) if error is not None and error > 0 else None


def _rate(amount: float, span: float) -> float:
    return amount / span if span > 0 else 0.0


def _quality(replay: Replay) -> Quality | None:
    best, tested = replay.best, replay.tested
    if best is None or best.error is None:
        return None
    if tested is None:
        return Quality(best.number, best.error, None, None, False)
    tally = tested.tally
    return Quality(best.number, best.error, tally, tally.error, tally.error == 0)


def _available(replay: Replay) -> float | None:
    """Operations that the devices could have done in the span: peak times span, summed over the legs. None if
    a device has no listed peak."""
    total = 0.0
    for leg in replay.legs:
        peak = _peak(leg, replay.opened.config.training.format)
        if peak is None and leg.span_seconds > 0:
            return None
        total += (peak or 0.0) * leg.span_seconds
    return total or None


def _peak(leg: Leg, format: str) -> float | None:
    """Sum of the dense peaks of a leg's devices; None if one of them is not listed."""
    total = 0.0
    for ready in leg.first_devices.values():
        peak = peak_ops_per_second(ready.device, format, ready.memory_bytes)
        if peak is None:
            return None
        total += peak
    return total or None


def _by_state(replay: Replay) -> dict[str, int]:
    found = Counter(story.state for story in replay.trials.values())
    return {state.value: found[state] for state in State}


def _control(replay: Replay) -> ControlResult | None:
    """Rate of the control, at a rung that all ranks have if there is one."""
    controls = comparable(controls_of(replay))
    if not controls:
        return None
    slowest = min(controls.values(), key=lambda control: (control.examples_per_second, control.rank))
    return ControlResult(
        devices=len(controls),
        examples_per_second=math.fsum(control.examples_per_second for control in controls.values()),
        slowest_examples_per_second=slowest.examples_per_second,
        slowest_host=slowest.host,
        slowest_rank=slowest.rank,
    )


def _aiperf1(replay: Replay, counts: Mapping[int, Counted], credited: Credit, span: float) -> float | None:
    """Rate as AIPerf 1.0 would count it: only completed epochs, each with all training and all validation
    examples."""
    if not task_of(replay.opened.config.data).in_aiperf1:
        return None
    manifest = replay.manifest
    training, validation = manifest.get("training_examples", 0), manifest.get("validation_examples", 0)
    if not training:
        return None
    total = 0
    for attempt, examples in zip(replay.attempts, credited.sums(replay, "train_examples")):
        epochs = examples // training
        if epochs:
            counted = counts.get(attempt.trial.number)
            if counted is None or counted.old is None:
                return None
            old = counted.old
            total += epochs * (validation * old.forward + training * (old.forward + old.backward))
    return _rate(total, span)
