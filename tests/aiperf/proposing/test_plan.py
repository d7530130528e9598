"""Steps, segments and learning rates of a trial."""

from __future__ import annotations

from dataclasses import replace

from aiperf.config import LimitsConfig, load_preset
from aiperf.proposing.plan import Plan, coupled_seconds, fabric_seconds, plan
from aiperf.wire.trial import HyperParameters, Trial
from tests.tables import ComesTo

TRAINING = replace(load_preset("digits").training, validate_every_examples=2000, warmup=0.1, decay="cosine")
COSINE = Plan(steps=110, segment_steps=40, warmup_steps=10, peak_rate=0.2, decay="cosine")
TRAPEZOID = replace(COSINE, decay="trapezoid")


def planned(epochs: int, batch_size: int = 50) -> tuple[int, int]:
    """The steps of a trial on 200 images, and of its segments."""
    found = plan(Trial(0, None, (), HyperParameters(0.2, batch_size), 1, epochs, 0), TRAINING, 200)
    return found.steps, found.segment_steps


def rates(plan: Plan, *steps: int, end: int | None = None) -> list[float]:
    return [round(plan.rate(step, end=end), 12) for step in steps]


def fabric(minutes: float, ranks: int) -> tuple[float, float]:
    """Seconds of the fabric, and those of the coupled control."""
    seconds = fabric_seconds(LimitsConfig(minutes=minutes, max_trials=1), ranks)
    return round(seconds, 9), round(coupled_seconds(seconds), 9)


def test_a_plan_by_hand(comes_to_what_was_read: ComesTo) -> None:
    """Steps cover the epochs and no more than one batch beyond; a validation follows about so many images. A
    rate rises linearly, and falls before a deadline as at the end of a plan. The fabric takes a tenth of the
    span, and nothing of a very short one."""
    comes_to_what_was_read("plans.txt", globals())
