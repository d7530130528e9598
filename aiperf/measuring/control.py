"""The control: training steps of a task's fixed network on random examples, timed before the span.

A search that drifts towards wide layers raises the score of a run without a faster machine; the rate of the
control, shown next to it, does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from math import log, pow
from statistics import median
from time import perf_counter

import torch

from aiperf.device import Device
from aiperf.device.device import memory_errors
from aiperf.measuring.training_step import place_network, training_steps
from aiperf.tasks.task import ControlNetwork
from aiperf.wire.reports import Rung
from nas.frozen import frozen
from nas.graph import Graph
from nas.layers import Shape
from nas.ops import TENSOR_OPS

LEAST_SECONDS = 10.0
"""Time in seconds after which the clock of an accelerator has settled."""
LEAST_STEPS = 20  # of an accelerator, as LEAST_SECONDS
RUNG_STEPS = 3
"""Number of timed steps of each rung of a CPU, after one to warm up: the median of three does not change if
another program interrupts one of them."""
FIRST_STEP = 1.5
"""Factor by which the first step of a size usually takes longer than the next ones, at most."""
STEPS_OF_BUILDING = 1  # drawing the weights of a network takes about as long as one of its steps


def measure_control(control: ControlNetwork, device: Device, format: str, seconds: float) -> tuple[Rung, ...]:
    """The timed rungs, the smallest first; the last one is the control.

    A CPU times all networks and sizes that fit into `seconds`, as `_climbed` divides them. Another device
    times the largest size for at least LEAST_SECONDS and LEAST_STEPS after one untimed step, with the
    control's batch or, if that does not fit into its memory, the largest half, quarter, … that does.
    """
    if device.kind == "cpu":
        return _climbed(control, device, format, seconds)
    batch_size = control.batch_size
    while True:
        try:
            with memory_errors():
                return (_steady(control, device, format, batch_size),)
        except torch.OutOfMemoryError:
            if batch_size == 1:
                raise
            batch_size //= 2
            device.clean()


def _steady(control: ControlNetwork, device: Device, format: str, batch_size: int) -> Rung:
    """Training steps of an accelerator, on random examples that lie in memory, after one untimed step."""
    size = control.sizes[-1]
    graph = control.graph(size)
    step = training_steps(place_network(graph, device), device, format)(batch_size, graph.input)
    step()
    device.synchronise()
    began, steps, seconds = perf_counter(), 0, 0.0
    while steps < LEAST_STEPS or seconds < LEAST_SECONDS:
        for _ in range(LEAST_STEPS):
            step()
        steps += LEAST_STEPS
        device.synchronise()
        seconds = perf_counter() - began
    return Rung(size, batch_size, steps, seconds)


@frozen
class _Work:
    """A step that a CPU may time: one rung of the climb."""

    network: ControlNetwork
    size: int
    batch_size: int

    @cached_property
    def graph(self) -> Graph:
        return self.network.graph(self.size)

    @property
    def operations(self) -> int:
        return self.batch_size * self.graph.cost.train.price(TENSOR_OPS)


@frozen
class _TimedRung:
    """A rung with the times of its steps so far, in seconds."""

    work: _Work
    step: Callable[[], None]
    seconds: list[float]
    """Times of the steps so far, without the one to warm up."""

    @property
    def expected(self) -> float:
        """Expected time in seconds of the next step, if no other program disturbs it."""
        return min(self.seconds)

    def again(self) -> None:
        self.seconds.append(_seconds(self.step))

    def rung(self, control: ControlNetwork) -> Rung:
        """The result, by the median step, because another program may interrupt one of a few."""
        work, steps = self.work, len(self.seconds)
        name = "" if work.network is control else work.network.short
        return Rung(work.size, work.batch_size, steps, steps * median(self.seconds), name)


def _climbed(control: ControlNetwork, device: Device, format: str, seconds: float) -> tuple[Rung, ...]:
    """The rungs that a CPU can time within `seconds`.

    A step cannot be interrupted, so a CPU climbs from the smallest examples up. Each rung gets one step to
    warm up and `RUNG_STEPS` timed ones; the largest rung is the control. The next rung is begun if `_needed`
    expects its steps to fit into the time left, and kept if the timed steps still fit, judging by its first
    step. The expectation rests on the fastest of several steps, so that the same machine always ends at the
    same rung. The first rung has all its steps if the timed ones alone fit; otherwise it has one, because
    there must be a control. The time that is then left goes, step by step, to the rung with the fewest steps.

    A CPU that is ten times slower than today's ends on smaller examples or on the smaller network, and the
    result says so. One network serves for all its sizes, because its weights do not depend on the size of the
    examples. A network that is not reached is never built, so it takes no memory.
    """
    networks = [control.smaller, control] if control.smaller else [control]
    rungs = [_Work(one, *rung) for one in networks for rung in one.climb]
    steps = _built(rungs[0], device, format)
    until, timed = perf_counter() + seconds, list[_TimedRung]()
    for work in rungs:
        if timed and perf_counter() + _needed(work, timed) > until:
            break
        if timed and work.network is not timed[-1].work.network:
            steps = _built(work, device, format)
        found = _TimedRung(work, steps(work.batch_size, work.graph.input), [])
        first = _seconds(found.step)
        if timed and perf_counter() + RUNG_STEPS * first / FIRST_STEP > until:
            break
        found.again()
        while len(found.seconds) < RUNG_STEPS and (timed or RUNG_STEPS * found.expected < seconds):
            found.again()
        timed.append(found)
    while fitting := [found for found in timed if perf_counter() + found.expected < until]:
        min(fitting, key=lambda found: (len(found.seconds), -found.expected)).again()
    return tuple(found.rung(control) for found in timed)


def _needed(work: _Work, timed: Sequence[_TimedRung]) -> float:
    """Seconds that must be left to begin a rung.

    The time of a step grows at most in proportion to its operations. At small sizes it grows much less,
    because most of the time goes to the weights, whose number does not change. How much less is estimated
    from the last two rungs: time grows with a power of the operations, and that power rises from 0 to 1 as
    they increase, so the mean of the last power and 1 is expected. For the second rung of a network there is
    no such estimate, so one step in proportion must fit. For the first rung of another network, whose weights
    must be drawn, all of its steps must fit, so that it is not built in vain.
    """
    last = timed[-1]
    growth = work.operations / last.work.operations
    if work.network is not last.work.network:
        return (STEPS_OF_BUILDING + 1 + RUNG_STEPS) * growth * last.expected
    before = [found for found in timed[:-1] if found.work.network is work.network]
    if not before:
        return growth * last.expected
    risen = last.work.operations / before[-1].work.operations
    power = log(last.expected / before[-1].expected) / log(risen)
    return (1 + RUNG_STEPS) * pow(growth, (1 + min(1.0, max(0.0, power))) / 2) * last.expected


def _built(work: _Work, device: Device, format: str) -> Callable[[int, Shape], Callable[[], None]]:
    network = work.network
    return training_steps(place_network(network.graph(network.sizes[-1]), device), device, format)


def _seconds(step: Callable[[], None]) -> float:
    began = perf_counter()
    step()
    return perf_counter() - began
