"""Measurements of a rank before the span: its ceilings, and the rate of the run's own work.

A step of torch cannot be interrupted. So whatever is timed on a CPU starts small, and the next size is tried
only if it will fit into the time, judging by the last one. Another device starts with the run's own batch: a
small one takes as long as the host needs to submit it, and says nothing about a large one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import field
from time import perf_counter

import torch

from aiperf.config import LEAST_BATCH
from aiperf.device import Device
from aiperf.device.device import memory_errors
from aiperf.measuring.ceiling import (
    SECONDS,
    measure_all_reduce,
    measure_by_threads,
    measure_copy,
    measure_products,
    measure_upload,
    rate_of,
)
from aiperf.measuring.training_step import RankWork, passes, place_network
from aiperf.parallel.parallel import Parallel
from aiperf.wire.reports import Ceiling, Rate, StepTime, TimedStep
from nas.frozen import frozen
from nas.modules import Network

SHARES: Mapping[str, float] = {"network": 0.6, "products": 0.3, "copy": 0.1}
"""Division of a CPU's time budget for its ceilings."""
CLIMBING = 0.4
"""Fraction of the network's time that is used to find the largest batch that fits, and once more to time that
batch if it is smaller than the run's own."""
NUM_PRODUCTS = 8
"""Number of shapes of products that a CPU times: the sides of `ceiling.SIDES`, and the tall one."""
OTHER_PRODUCTS = 2
"""Time for the products with all other numbers of threads together, as a multiple of the time for one
shape."""
SLOWER = 4.0
"""Factor by which a first step is expected to take longer than its products alone."""
GROWTH = 4
"""Factor between two batch sizes that are tried one after the other."""
PASSES_NEEDED = 2
"""Passes of a batch size that must fit into the time for it to be tried: one to warm up, one to time."""


@frozen
class TimedPass:
    """A timed forward and backward pass."""

    once: Callable[[], None]
    """Runs the pass once more."""
    batch_size: int
    seconds: float
    """Time of one pass in seconds."""


@frozen
class NetworkTimes:
    """What a rank measured with the networks of a run; each part is empty if it was not measured."""

    rate: Rate | None = None
    """Tensor operations per second of eager passes of the typical network."""
    thread_seconds: Mapping[int, float] = field(default_factory=dict)
    """Median time in seconds of the work by which the number of threads was chosen, by number."""
    share: float = 0.0
    """Fraction of the resamples that choose the same number of threads; 0 if too few rounds were timed."""
    timed: tuple[TimedStep, ...] = ()
    """`Ceiling.timed`."""
    steps: Mapping[str, StepTime] = field(default_factory=dict)
    """`Ceiling.steps`."""
    seed_steps: Mapping[str, StepTime] = field(default_factory=dict)
    """`Ceiling.seed_steps`."""


def network_seconds(device: Device, seconds: float) -> float:
    """Time for passes of the network, of a budget of `seconds` for all ceilings."""
    return SHARES["network"] * seconds if device.kind == "cpu" else SECONDS


def measure(
    device: Device,
    work: RankWork,
    parallel: Parallel,
    rank: int,
    host: str,
    network: NetworkTimes,
    seconds: float,
) -> Ceiling:
    """Measures the ceilings of a device. It must be called by all ranks of a group at once.

    `seconds` is the time budget of a CPU for all ceilings, of which `network_seconds` were used for
    `network`; another device takes a few seconds. Raises WorldError if the device does not support the
    format, or has no memory left.
    """
    device.declare(work.format)
    share = {part: share * seconds if device.kind == "cpu" else SECONDS for part, share in SHARES.items()}
    each = share["products"] / (NUM_PRODUCTS + OTHER_PRODUCTS if device.kind == "cpu" else 1)
    products = measure_products(device, work.format, each)
    fastest = max(products, key=lambda product: product.rate.fastest)
    by_threads = measure_by_threads(
        device, work.format, products, network.thread_seconds, OTHER_PRODUCTS * each
    )
    return Ceiling(
        rank=rank,
        host=host,
        device=device.name,
        format=work.format,
        side=fastest.side,
        product=fastest.rate,
        copy=measure_copy(device, share["copy"]),
        upload=measure_upload(device, SECONDS),
        all_reduce=measure_all_reduce(device, parallel),
        seed=network.rate,
        threads=device.threads,
        thread_seconds={str(count): took for count, took in network.thread_seconds.items()},
        threads_share=network.share,
        steps=network.steps,
        thread_products={str(count): rate for count, rate in by_threads.items()},
        timed=network.timed,
        seed_steps=network.seed_steps,
    )


def network_rate(device: Device, work: RankWork, rate: float, seconds: float) -> Rate | None:
    """Tensor operations per second of passes of the network; None if on a CPU one pass takes longer than
    `seconds`, judging by the `rate` of products, or if there is no memory for it."""
    began = perf_counter()
    timed = largest_batch(device, work, rate, seconds)
    if timed is None:
        return None
    until = seconds + (began if device.kind == "cpu" else perf_counter())
    operations = work.operations(timed.batch_size)
    rates = [operations / timed.seconds]
    while perf_counter() + timed.seconds < until:
        rates.append(operations / _seconds(device, timed.once))
    return rate_of(rates)


def largest_batch(device: Device, work: RankWork, rate: float, seconds: float) -> TimedPass | None:
    """The largest batch, up to the run's own, of which PASSES_NEEDED passes fit into `seconds`; None if the
    smallest one does not fit. On another device than a CPU only the memory counts, not the time."""
    if device.kind != "cpu":
        return _largest_in_memory(device, work)
    batch_size, network = min(LEAST_BATCH, work.batch_size), place_network(work.network, device)
    until, found = perf_counter() + seconds, None
    expected = SLOWER * work.operations(batch_size) / rate
    while perf_counter() + PASSES_NEEDED * expected < until:
        try:
            found = _timed_pass(network, device, work.format, batch_size)
        except torch.OutOfMemoryError:
            device.clean()
            break
        if batch_size == work.batch_size:
            break
        larger = min(GROWTH * batch_size, work.batch_size)
        batch_size, expected = larger, found.seconds * larger / batch_size
    return found


def _largest_in_memory(device: Device, work: RankWork) -> TimedPass | None:
    """The run's own batch, or the largest half, quarter, … of it that fits into the memory."""
    network, batch_size = place_network(work.network, device), work.batch_size
    while batch_size >= min(LEAST_BATCH, work.batch_size):
        with suppress(torch.OutOfMemoryError):
            return _timed_pass(network, device, work.format, batch_size)
        device.clean()
        batch_size //= 2
    return None


def _timed_pass(network: Network, device: Device, format: str, batch_size: int) -> TimedPass:
    """A pass, timed after one to warm up, in which libraries may try out kernels. Raises
    torch.OutOfMemoryError."""
    with memory_errors():
        once = passes(network, device, format, batch_size)
        once()
        return TimedPass(once, batch_size, _seconds(device, once))


def _seconds(device: Device, work: Callable[[], None]) -> float:
    """Time in seconds of one piece of work, with the device synchronised at both ends."""
    device.synchronise()
    began = perf_counter()
    work()
    device.synchronise()
    return perf_counter() - began
