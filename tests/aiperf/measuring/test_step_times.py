"""The seed's step by every engine, timed on this processor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf

import pytest
import torch

from aiperf.config import TrainingConfig
from aiperf.device import bind
from aiperf.engines.graphed import WARM_UP_WRAPPED, Graphed
from aiperf.engines.registry import OVER_GROUP, refuse_unusable
from aiperf.errors import WorldError
from aiperf.measuring import step_times
from aiperf.measuring.step_times import Timing, measure_steps, shared_times
from aiperf.measuring.training_step import RankWork
from aiperf.parallel.parallel import Parallel, Solo
from aiperf.wire.reports import Rate, StepTime
from nas.seeds import residual
from tests.aiperf.engines.recording import Again, Recording, recording
from tests.aiperf.engines.test_graphed import Averaging

SEED = residual((1, 8, 8), 3)
WORK = RankWork(SEED, "fp32", 16)
FAST = Rate(1e10, 1e10, 0.0)
AUTO = TrainingConfig("fp32", 16, 0.1, (1,), 64, step="auto")


def timing(training: TrainingConfig = AUTO, parallel: Parallel | None = None, seconds: float = 0.1) -> Timing:
    return Timing(training, 100, inf, parallel or Solo(), seconds)


def test_engines_are_timed_and_the_others_have_a_reason() -> None:
    times = measure_steps(recording(), WORK, FAST, timing(seconds=0.2))
    assert 0 < times["eager"].seconds < 1
    assert times["eager"].prepare_seconds == 0
    for name in ("graphed", "fused-graphed"):
        assert 0 < times[name].seconds < 1
        assert times[name].prepare_seconds > 0
    assert times["compiled"].seconds == 0
    assert "no trial is long enough to compile for" in times["compiled"].why_not


def test_an_engine_that_makes_another_step_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "the loss is 2 instead of 1"
    monkeypatch.setattr(step_times, "prepare_and_check", lambda kind, eager, *others: (eager, reason))
    found = measure_steps(recording(), WORK, FAST, timing())["graphed"]
    assert (found.seconds, found.why_not) == (0.0, reason)


def test_only_the_engine_that_the_configuration_names_is_timed_beside_the_eager_one() -> None:
    only = replace(AUTO, step="graphed")
    assert list(measure_steps(recording(), WORK, FAST, timing(only))) == ["eager", "graphed"]


def test_a_seed_of_which_no_step_fits_is_not_timed() -> None:
    assert measure_steps(recording(), WORK, None, timing()) == {}
    assert measure_steps(recording(), WORK, Rate(10.0, 10.0, 0.0), timing()) == {}


class Two(Solo):
    """Two ranks, of which the other measures this of what this one does; the same, unless it is said."""

    ranks = 2

    def __init__(self, other: Callable[[tuple[int, ...]], tuple[int, ...]] = lambda own: own) -> None:
        self.other = other

    def total(self, *numbers: int) -> tuple[int, ...]:
        own = numbers[: len(numbers) // 2]
        return own + self.other(own)


def test_a_group_has_one_time_and_uses_what_all_can() -> None:
    """The other takes three times as long, and cannot use what is last."""
    group = Two(lambda own: (*(3 * number for number in own[:-3]), 0, 0, 0))
    own = {"eager": StepTime(1.0, error=0.01), "graphed": StepTime(0.5, 2.0), "compiled": StepTime(0.25, 9.0)}
    assert shared_times(own, 2.0, group) == {
        "eager": StepTime(6.0, error=0.03),
        "graphed": StepTime(3.0, 6.0),
        "compiled": StepTime(0.0, 9.0, "another rank cannot use it"),
    }
    assert shared_times(own, 1.0, Solo()) == own


class Accelerated(Recording):
    """A device that is not a CPU."""

    threads = 0


class Wrapping(Two):
    """Two ranks that average their gradients by a wrapped network."""

    wraps_network = True
    wrapped: list[Averaging]

    def total(self, *numbers: int) -> tuple[int, ...]:
        return numbers if len(numbers) == 1 else super().total(*numbers)

    def wrap(
        self, network: torch.nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        self.wrapped = [Averaging(network)]
        return self.wrapped[0], optimizer


@pytest.mark.parametrize("fails", [False, True])
def test_a_group_times_the_captured_steps_that_it_would_make(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all-reduce: here a capture of the hooks may fail (pytorch/pytorch 164302), and one of a rank that
    is alone does not."""

    def capture_hooks(self: Graphed) -> None:
        raise RuntimeError("operation would make the legacy stream depend on a capturing blocking stream")

    group, cpu = Wrapping(), recording()
    if fails:
        monkeypatch.setattr(Graphed, "_with_hooks", capture_hooks)
        monkeypatch.setattr(Again, "record", lambda self, work: work())
        monkeypatch.setattr(Again, "replay", lambda self: None)
    device = Accelerated(cpu.index, cpu.name, cpu.memory_bytes)
    found = measure_steps(device, WORK, FAST, timing(replace(AUTO, step="graphed"), group))["graphed"]
    assert group.wrapped[0].heard >= WARM_UP_WRAPPED * len(list(group.wrapped[0].network.parameters()))
    assert (found.seconds > 0) == (not fails)
    assert found.why_not.startswith("RuntimeError: operation would make" if fails else "")


def test_a_group_that_normalises_over_its_ranks_is_eager() -> None:
    over = replace(AUTO, batch_norm="synchronised")
    found = measure_steps(recording(), WORK, FAST, timing(over, Two()))
    assert {name for name, time in found.items() if time.seconds > 0} == {"eager"}
    assert {time.why_not for name, time in found.items() if name != "eager"} == {OVER_GROUP}
    assert measure_steps(recording(), WORK, FAST, timing(over))["graphed"].seconds > 0


def test_who_names_an_engine_that_a_group_cannot_use_is_told() -> None:
    graphed = replace(AUTO, step="graphed", batch_norm="synchronised")
    refuse_unusable(SEED, recording(), graphed, 1)
    refuse_unusable(SEED, recording(), replace(graphed, step="auto"), 2)
    refuse_unusable(SEED, recording(), replace(graphed, step="eager"), 2)
    with pytest.raises(WorldError, match=f"^training.step is graphed, but {OVER_GROUP}; use --step auto$"):
        refuse_unusable(SEED, recording(), graphed, 2)
    with pytest.raises(WorldError, match="but work of cpu devices cannot be captured; use --step auto"):
        refuse_unusable(SEED, bind("cpu", 0), replace(graphed, batch_norm="local"), 2)


def test_no_rank_measures_what_another_cannot() -> None:
    """It would wait for that one's times for ever."""
    assert measure_steps(recording(), WORK, FAST, timing(parallel=Two(lambda own: (0,) * len(own)))) == {}
