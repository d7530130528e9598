"""Steps, segments and learning rates of a trial."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aiperf.config import LimitsConfig, load_preset
from aiperf.proposing.plan import Plan, coupled_seconds, fabric_seconds, plan
from aiperf.wire.trial import HyperParameters, Trial

TRAINING = replace(load_preset("digits").training, validate_every_examples=2000, warmup=0.1, decay="cosine")


def trial(epochs: int, batch_size: int = 50) -> Trial:
    return Trial(0, None, (), HyperParameters(0.2, batch_size), 1, epochs, 0)


def test_steps_cover_the_epochs_and_no_more_than_one_batch_beyond() -> None:
    assert plan(trial(60), TRAINING, 200).steps == 240
    assert plan(trial(1, batch_size=64), TRAINING, 200).steps == 4  # 256 images: the last batch runs over


def test_a_validation_follows_about_so_many_images() -> None:
    assert plan(trial(60), TRAINING, 200).segment_steps == 40
    assert plan(trial(1), TRAINING, 200).segment_steps == 4  # never longer than the trial
    assert plan(trial(60, batch_size=4096), TRAINING, 200).segment_steps == 1


def test_the_rate_rises_linearly_and_falls_to_zero() -> None:
    cosine = Plan(steps=110, segment_steps=40, warmup_steps=10, peak_rate=0.2, decay="cosine")
    assert [cosine.rate(step) for step in (0, 4, 9)] == pytest.approx([0.02, 0.1, 0.2])
    assert cosine.rate(10) == pytest.approx(0.2)
    assert cosine.rate(60) == pytest.approx(0.1)
    assert cosine.rate(109) == pytest.approx(0.0, abs=1e-4)
    linear = replace(cosine, decay="linear")
    assert linear.rate(35) == pytest.approx(0.15)
    assert linear.rate(109) == pytest.approx(0.002)
    trapezoid = replace(cosine, decay="trapezoid")
    assert [trapezoid.rate(step) for step in (10, 90, 100)] == pytest.approx([0.2, 0.2, 0.1])
    assert trapezoid.rate(109) == pytest.approx(0.01)


def test_before_a_deadline_the_rate_falls_as_at_the_end_of_a_plan() -> None:
    planned = Plan(steps=110, segment_steps=40, warmup_steps=10, peak_rate=0.2, decay="trapezoid")
    shorter = replace(planned, steps=60)
    for step in range(60):
        assert planned.rate(step, end=60) == shorter.rate(step)
    assert planned.rate(59, end=50) == 0.0  # it was thought to end sooner
    assert [planned.rate(step, end=200) for step in (10, 109)] == [planned.rate(10), planned.rate(109)]


def test_without_warm_up_the_first_step_has_the_full_rate() -> None:
    assert Plan(10, 5, 0, 0.2, "cosine").rate(0) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("minutes", "ranks", "seconds"),
    [(2.0, 2, 12.0), (60.0, 4096, 60.0), (0.0, 2, 60.0), (1.5, 8, 0.0), (60.0, 1, 0.0)],
)
def test_the_fabric_takes_a_tenth_of_the_span_and_nothing_of_a_very_short_one(
    minutes: float, ranks: int, seconds: float
) -> None:
    assert fabric_seconds(LimitsConfig(minutes=minutes, max_trials=1), ranks) == pytest.approx(seconds)
    assert coupled_seconds(seconds) == min(30.0, seconds)
