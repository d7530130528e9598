"""The engine of a trial, by what was measured before the span."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from aiperf.config import TrainingConfig
from aiperf.proposing.engine_choice import NOT_COMPARED, Engines, Expected, Sizes, choose
from aiperf.wire.messages import StepTime
from nas.seeds import residual

TIMES = {
    "eager": StepTime(0.1),
    "graphed": StepTime(0.08, prepare_seconds=1.0),
    "compiled": StepTime(0.05, prepare_seconds=50.0),
    "fused": StepTime(0.0, why_not="no compiler"),
}
COMPILED, GRAPHED = (f"{times} times as fast as eager before the span" for times in ("2.00", "1.25"))
TOO_SHORT = f"graphed steps are {GRAPHED}, but take longer to prepare than the trial would gain"
TRIAL = Expected(steps=2000, size=1.0, layers=1.0, seconds_left=inf)  # 200 s by the eager step


@pytest.mark.parametrize(
    ("change", "engine", "why"),
    [
        ({}, "compiled", COMPILED),  # saves 100 s for 50
        ({"layers": 1.5}, "graphed", GRAPHED),  # saves 25 s for 75, or 38.5
        ({"steps": 500}, "graphed", GRAPHED),
        ({"steps": 500, "size": 4.0}, "compiled", COMPILED),
        ({"seconds_left": 60.0}, "graphed", GRAPHED),
        ({"steps": 40}, "eager", TOO_SHORT),
    ],
)
def test_the_engine_is_the_one_by_which_the_trial_is_over_first(
    change: dict[str, float], engine: str, why: str
) -> None:
    assert choose("auto", TIMES, replace(TRIAL, **change)) == (engine, why)  # type: ignore[arg-type]


def test_what_was_configured_is_taken() -> None:
    assert choose("fused", {}, TRIAL) == ("fused", "as configured")


def test_without_measurements_and_without_gain_the_step_is_eager() -> None:
    nearly = {"eager": StepTime(0.1), "graphed": StepTime(0.099)}
    assert choose("auto", nearly, TRIAL) == ("eager", "the fastest before the span")
    none = {"eager": StepTime(0.1), "fused": TIMES["fused"]}
    assert choose("auto", none, TRIAL) == ("eager", "fused: no compiler")
    assert choose("auto", {}, TRIAL) == ("eager", NOT_COMPARED)


@pytest.mark.parametrize(
    ("eager", "fused", "error", "chosen"),
    [
        (0.133, 0.114, 0.08, ("fused", "1.17 times as fast as eager before the span")),
        (0.100, 0.099, 0.00, ("fused", "as fast as eager before the span, within the noise")),
        (0.100, 0.110, 0.05, ("fused", "as fast as eager before the span, within the noise")),
        (0.100, 0.101, 0.00, ("fused", "as fast as eager before the span, within the noise")),
        (0.100, 0.110, 0.01, ("eager", "the fastest before the span")),
    ],
)
def test_fused_steps_are_taken_unless_eager_ones_are_surely_faster(
    eager: float, fused: float, error: float, chosen: tuple[str, str]
) -> None:
    """The first times are of a processor whose speed changes by several per cent from step to step: if a gain
    had to be sure, one run would take it and the next one would not."""
    times = {"eager": StepTime(eager, error=error), "fused": StepTime(fused, error=error)}
    assert choose("auto", times, TRIAL) == chosen


def test_another_engine_must_be_faster_than_fused_steps() -> None:
    fused = TIMES | {"fused": StepTime(0.06)}
    assert choose("auto", fused, replace(TRIAL, steps=20_000))[0] == "compiled"
    assert choose("auto", fused, TRIAL) == ("fused", "1.67 times as fast as eager before the span")


def test_nothing_is_compiled_that_would_not_be_ready_in_the_span() -> None:
    late = replace(TRIAL, seconds_left=40.0)
    assert choose("compiled", TIMES, late) == ("eager", "the span ends before compiled steps would be ready")
    assert choose("compiled", TIMES, TRIAL) == ("compiled", "as configured")


SEED, GROWN = residual((1, 8, 8), 3), residual((1, 8, 8), 3, (8, 16, 32))


def engines(**seeds: float) -> Engines:
    training = TrainingConfig("fp32", 16, 0.1, (1,), 64, step="auto")
    times = {"eager": StepTime(0.04), "fused": StepTime(0.02), "compiled": StepTime(0.0, why_not="too long")}
    seed_times = {name: StepTime(seconds) for name, seconds in seeds.items()}
    return Engines(training, Sizes(SEED, GROWN, 16), times, seed_times)


def test_the_engine_of_a_small_network_is_the_one_that_was_faster_with_the_seed() -> None:
    found = engines(eager=0.01, fused=0.012)
    assert found.choose(SEED, 100, 16, inf) == ("eager", "the fastest before the span")
    assert found.choose(GROWN, 100, 16, inf) == ("fused", "2.00 times as fast as eager before the span")
    half_batch = found.choose(GROWN, 100, 8, inf)
    assert half_batch == ("fused", "2.00 times as fast as eager before the span"), "few reasons in a run"


def test_a_seed_that_was_not_timed_by_all_engines_is_left_out() -> None:
    """Only like is compared with like."""
    assert engines(eager=0.001).choose(SEED, 100, 16, inf)[0] == "fused"
    assert engines().choose(SEED, 100, 16, inf)[0] == "fused"
