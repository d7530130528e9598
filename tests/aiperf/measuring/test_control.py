"""The control of each task on a processor: it climbs as far as the time allows, by operations."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
import torch

from aiperf.device import Device, bind
from aiperf.measuring import control
from aiperf.measuring.control import RUNG_STEPS, measure_control
from aiperf.measuring.training_step import place_network
from aiperf.tasks.images.task import IMAGES as IMAGES_TASK
from aiperf.tasks.language.task import LANGUAGE
from aiperf.tasks.task import ControlNetwork
from aiperf.wire.reports import Rung
from nas.graph import Graph
from nas.layers import Shape
from nas.modules import Network
from nas.seeds import residual
from nas.text_seeds import gpt_4x128, llama_1x64
from tests.tables import ComesTo

TEXT = replace(
    LANGUAGE.control,
    sizes=(8, 16, 32),
    graph=lambda size: gpt_4x128((size,), 256),
    climb=((8, 1), (8, 2), (16, 2), (32, 2)),
    smaller=None,
)
SMALLER = replace(
    TEXT, short="small", sizes=(8,), graph=lambda size: llama_1x64((size,), 256), climb=((8, 2),)
)
IMAGES = replace(
    TEXT, sizes=(16, 32), graph=lambda size: residual((3, size, size), 10), climb=((16, 2), (32, 2))
)


@pytest.mark.parametrize("of", [TEXT, IMAGES, replace(TEXT, smaller=SMALLER)])
def test_real_steps_are_timed_at_every_rung(of: ControlNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on whenever it is read."""
    reads = count()
    monkeypatch.setattr(control, "perf_counter", lambda: next(reads) / 20)
    found = measure_control(of, bind("cpu", 0), "fp32", 6.0)
    below = [(8, 2, "small")] if of.smaller else []
    assert [(rung.size, rung.batch_size, rung.network) for rung in found] == [
        *below,
        *((size, batch_size, "") for size, batch_size in of.climb),
    ]
    steps = [rung.steps for rung in found]
    assert RUNG_STEPS <= min(steps) <= max(steps) <= min(steps) + 1
    assert all(rung.examples_per_second == pytest.approx(20 * rung.batch_size) for rung in found)


@pytest.mark.contract
def test_without_time_it_does_the_smallest() -> None:
    (found,) = measure_control(replace(TEXT, smaller=SMALLER), bind("cpu", 0), "fp32", 1e-6)
    assert (found.size, found.batch_size, found.steps, found.network) == (8, 2, 1, "small")


class Processor:
    """On which a step takes a stated time, longer by chance; the first of all twice as long, the first of a
    size 1.2 times."""

    def __init__(
        self,
        seconds: Mapping[tuple[int, int], float],
        noise: float = 0.0,
        seed: int = 0,
        disturbed: float = 1.0,
    ) -> None:
        self.seconds, self.noise, self.rng = seconds, noise, random.Random(seed)
        self.disturbed, self.now, self.done = disturbed, 0.0, list[tuple[int, int]]()

    def steps(self, *network: object) -> Callable[[int, Shape], Callable[[], None]]:
        def of(batch_size: int, input: Shape) -> Callable[[], None]:
            size = input[-1]

            def step() -> None:
                self.now += self.took(size, batch_size)
                self.done.append((size, batch_size))

            return step

        return of

    def took(self, size: int, batch_size: int) -> float:
        seconds = self.seconds[size, batch_size] * (1 + self.noise * self.rng.expovariate(1))
        times = {0: 1.2 if self.done else 2.0, 2: self.disturbed}
        return seconds * times.get(self.done.count((size, batch_size)), 1.0)

    def climbed(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> tuple[Rung, ...]:
        stand_in(self, monkeypatch)
        return measure_control(IMAGES_TASK.control, bind("cpu", 0), "fp32", seconds)


def stand_in(device: Processor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its steps in place of real ones, on its clock."""
    monkeypatch.setattr(control, "place_network", lambda graph, device: None)
    monkeypatch.setattr(control, "training_steps", device.steps)
    monkeypatch.setattr(control, "perf_counter", lambda: device.now)


ZEN_4 = {32: 0.17, 64: 0.19, 112: 0.28, 160: 0.42, 224: 0.70}
"""A step of eight images in bf16 on two cores of an AMD EPYC."""
SCALAR = {size: 0.05 * (size / 32) ** 2 for size in ZEN_4}
"""Where the operations take all the time."""


def of(steps: Mapping[int, float], times: float = 1.0) -> dict[tuple[int, int], float]:
    return {(size, 8): times * seconds for size, seconds in steps.items()}


def test_a_processor_ends_at_one_size_within_its_time(
    monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    def sizes(steps: dict[tuple[int, int], float], seconds: float) -> set[tuple[int, ...]]:
        """In six runs, whose steps take longer by chance: 2 % in the mean, sometimes a tenth."""
        climbs = set[tuple[int, ...]]()
        for seed in range(6):
            processor = Processor(steps, noise=0.02, seed=seed)
            found = processor.climbed(monkeypatch, seconds)
            climbs.add(tuple(rung.size for rung in found))
            assert min(rung.steps for rung in found) >= RUNG_STEPS
            assert processor.now < 1.05 * seconds
            for rung in found:
                assert rung.seconds / rung.steps == pytest.approx(steps[rung.size, 8], rel=0.1)
        return climbs

    comes_to_what_was_read("climbs.txt", {"sizes": sizes, "of": of, "ZEN_4": ZEN_4, "SCALAR": SCALAR})


def test_a_step_that_another_program_disturbs_changes_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the timed ones of each size takes three times as long."""
    usual, found = (Processor(of(ZEN_4), disturbed=times).climbed(monkeypatch, 16.0) for times in (1.0, 3.0))
    assert [(rung.size, rung.examples_per_second) for rung in found] == [
        (rung.size, pytest.approx(rung.examples_per_second)) for rung in usual
    ]


@pytest.mark.parametrize(("seconds", "steps"), [(1.5, 1), (1.6, 3), (3.2, 4)])
def test_a_processor_too_slow_for_three_steps_times_one(
    seconds: float, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where three fit without the one to warm up, it times three, and takes as much longer as that one."""
    processor = Processor(of(ZEN_4, 3.0))
    (found,) = processor.climbed(monkeypatch, seconds)
    assert (found.size, found.steps, found.seconds) == (32, steps, pytest.approx(0.51 * steps))
    assert processor.now == pytest.approx((2 + steps) * 0.51)


class Accelerator(Processor):
    """With room for a batch of 64, of which a step takes 0.3 s and the first one 5 s."""

    kind = "cuda"

    def took(self, size: int, batch_size: int) -> float:
        if batch_size > 64:
            raise torch.OutOfMemoryError
        return 0.3 if self.done else 5.0

    def synchronise(self) -> None: ...

    def clean(self) -> None: ...


def test_an_accelerator_does_the_largest_size_in_the_batch_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty steps at a time, for at least ten seconds, after an untimed one."""
    device: Any = Accelerator({})
    stand_in(device, monkeypatch)
    (found,) = measure_control(IMAGES_TASK.control, device, "bf16", 1.0)
    assert (found.size, found.batch_size, found.steps, found.network) == (224, 64, 40, "")
    assert found.seconds == pytest.approx(12.0)


def test_a_processor_without_time_for_gpt2_small_never_builds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []

    def build(graph: Graph, device: Device) -> Network:
        built.append(graph.num_parameters)
        return place_network(graph, device)

    monkeypatch.setattr(control, "place_network", build)
    (found,) = measure_control(LANGUAGE.control, bind("cpu", 0), "fp32", 0.2)
    assert (found.network, found.size, found.batch_size) == ("gpt-4x128", 64, 12)
    assert built == [867_072]


def test_the_control_climbs_sizes_that_it_may_have_to_the_one_that_is_ranked() -> None:
    largest, smaller = LANGUAGE.control, LANGUAGE.control.smaller
    assert smaller is not None
    assert [largest.named(name) for name in ("", "gpt-4x128", "other")] == [largest, smaller, largest]
    for one in (IMAGES_TASK.control, largest, smaller):
        assert {size for size, _ in one.climb} <= set(one.sizes)
    assert LANGUAGE.ranked is not None
    assert largest.climb[-1][0] == LANGUAGE.ranked.control_size
    graphs = [largest.graph(size) for size in largest.sizes]
    assert {graph.num_parameters - 768 * graph.input[0] for graph in graphs} == {86_235_648 - 768 * 1024}
