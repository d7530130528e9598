"""The engine of a trial, by what was measured before the span."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from aiperf.config import TrainingConfig
from aiperf.proposing.engine_choice import Engines, Expected, Sizes, choose
from aiperf.wire.reports import StepTime
from nas.seeds import residual
from tests.tables import ComesTo

TIMES = {
    "eager": StepTime(0.1),
    "graphed": StepTime(0.08, prepare_seconds=1.0),
    "compiled": StepTime(0.05, prepare_seconds=50.0),
    "fused": StepTime(0.0, why_not="no compiler"),
}
TRIAL = Expected(steps=2000, size=1.0, layers=1.0, seconds_left=inf)  # 200 s by the eager step


def fused(eager: float, fused: float, error: float) -> tuple[str, str]:
    """The first times are of a processor whose speed changes by several per cent from step to step: if a gain
    had to be sure, one run would take it and the next one would not."""
    times = {"eager": StepTime(eager, error=error), "fused": StepTime(fused, error=error)}
    return choose("auto", times, TRIAL)


SEED, GROWN = residual((1, 8, 8), 3), residual((1, 8, 8), 3, (8, 16, 32))


def engines(**seeds: float) -> Engines:
    training = TrainingConfig("fp32", 16, 0.1, (1,), 64, step="auto")
    times = {"eager": StepTime(0.04), "fused": StepTime(0.02), "compiled": StepTime(0.0, why_not="too long")}
    seed_times = {name: StepTime(seconds) for name, seconds in seeds.items()}
    return Engines(training, Sizes(SEED, GROWN, 16), times, seed_times)


def test_the_engine_is_the_one_by_which_the_trial_is_over_first(comes_to_what_was_read: ComesTo) -> None:
    """Fused steps are taken unless eager ones are surely faster, or another engine by its compilation. For a
    small network it is the one that was faster with the seed, if the seed was timed by all: only like is
    compared with like."""
    comes_to_what_was_read("engine_choice.txt", {**globals(), "replace": replace})
