"""The few figures of a run that are read first, each with what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiperf.journal.replay import Replay
from aiperf.score.score import Score
from aiperf.wording import clock, figure, percent, rate, rates
from analysis.readings.hosts import control_sizes

CONTROL = "Control, images/s"


@dataclass(frozen=True)
class Fact:
    name: str
    value: str
    aside: str
    """What it rests on, in a few words."""


def key_facts(replay: Replay, score: Score) -> Sequence[Fact]:
    return (
        Fact("Sustained OPS", rate(score.ops_per_second), _interval(score)),
        Fact(
            "Regulated score",
            "none" if score.regulated_score is None else rate(score.regulated_score),
            "−ln(test error) × sustained OPS",
        ),
        _error(score),
        Fact("OPS a device", *_per_device(replay, score)),
        _mfu(score),
        _control(replay, score),
        Fact(
            "Goodput",
            percent(score.goodput.operations / score.raw.operations, 1) if score.raw.operations else "none",
            f"of the operations done were credited; {score.goodput.trained_images:,} training images",
        ),
        _old(score),
    )


def num_devices(replay: Replay) -> int:
    """Ranks of the run; each has one device."""
    return max((len(leg.devices) for leg in replay.legs), default=0)


def _interval(score: Score) -> str:
    line = score.timeline
    if line.stable_interval is None:
        return f"over {clock(score.span_seconds)}; no stable window"
    interval = rates(*line.stable_interval)
    return f"over {clock(score.span_seconds)}; in the stable window {interval} (95 %)"


def _error(score: Score) -> Fact:
    quality = score.quality
    if quality is None:
        return Fact("Test error", "none", "no trial was validated")
    validation = f"{percent(quality.validation_error)} on validation, trial {quality.trial}"
    if quality.error is None or quality.of is None or quality.correct is None:
        return Fact("Test error", "not tested", validation)
    wrong = f"{quality.of - quality.correct:,} of {quality.of:,} wrong"
    if quality.error_is_bound:
        wrong = f"none of {quality.of:,} wrong, 1/(2N) taken"
    return Fact("Test error", percent(quality.error), f"{wrong}; {validation}")


def _per_device(replay: Replay, score: Score) -> tuple[str, str]:
    devices = num_devices(replay)
    if not devices:
        return "unknown", "no rank was ready"
    return rate(score.ops_per_second / devices), f"{devices:,} device{'' if devices == 1 else 's'}"


def _mfu(score: Score) -> Fact:
    tensor = f"{rate(score.tensor_ops_per_second)} of tensor operations"
    if score.mfu is None or score.peak_ops_per_second is None:
        return Fact("MFU", "unknown", f"{tensor}; the device has no listed peak")
    return Fact("MFU", percent(score.mfu, 1), f"{tensor} of {rate(score.peak_ops_per_second)} dense peak")


def _control(replay: Replay, score: Score) -> Fact:
    control = score.control
    if control is None:
        return Fact(CONTROL, "not measured", "ResNet-50 v1.5 training, 224², before the span")
    slowest = f"slowest device {figure(control.slowest_images_per_second)} on {control.slowest_host}"
    name = f"ResNet-50 v1.5, {control_sizes(replay)}"
    return Fact(CONTROL, figure(control.images_per_second), f"{name}; {slowest}")


def _old(score: Score) -> Fact:
    old = score.aiperf1_ops_per_second
    return Fact(
        "As AIPerf 1.0 counted",
        "unknown" if old is None else rate(old),
        "the same run by the rules of 2021; not a score",
    )
