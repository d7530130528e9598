"""Measurements of a rank before the span: number of threads, ceilings, and the rate of the run's own work.

A step of torch cannot be interrupted. So whatever is timed on a CPU starts small, and the next size is tried
only if it will fit into the time, judging by the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter

import torch

from aiperf.config import LEAST_BATCH
from aiperf.device import Device
from aiperf.measuring.ceiling import (
    SECONDS,
    Multiply,
    measure_all_reduce,
    measure_by_threads,
    measure_copy,
    measure_products,
    measure_upload,
    rate_of,
)
from aiperf.measuring.threads import ThreadChoice, choose_threads
from aiperf.measuring.training_step import passes, place_network
from aiperf.parallel.parallel import Parallel
from aiperf.wire.messages import Ceiling, Rate
from nas.graph import Graph
from nas.ops import TENSOR_OPS

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
SMALL = 256
"""Side of the square product by which formats are compared, and numbers of threads if one pass of the network
takes too long."""
PASSES_NEEDED = 2
"""Passes of a batch size that must fit into the time for it to be tried: one to warm up, one to time."""


@dataclass(frozen=True)
class RankWork:
    """The work of a run on one rank: forward and backward passes of a network."""

    network: Graph
    """The seed, or the run's typical network (`nas.search.typical`)."""
    format: str
    batch_size: int
    """Training examples of one rank per step."""

    def operations(self, batch_size: int) -> int:
        """Tensor operations of one forward and backward pass over `batch_size` examples."""
        return batch_size * self.network.cost.train.price(TENSOR_OPS)


@dataclass(frozen=True)
class _Timed:
    """A timed forward and backward pass."""

    once: Callable[[], None]
    """Runs the pass once more."""
    batch_size: int
    seconds: float
    """Time of one pass in seconds."""


def measure(
    device: Device, work: RankWork, parallel: Parallel, rank: int, host: str, rate: float, seconds: float
) -> Ceiling:
    """Measures the ceilings of a device. It must be called by all ranks of a group at once.

    `seconds` is the time budget, of which a CPU uses all; another device takes a few seconds. `rate` is that
    of a small product on one thread in operations per second, by which the time of the first pass is
    estimated. Raises WorldError if the device does not support the format, or has no memory left.
    """
    device.declare(work.format)
    share = {part: share * seconds if device.kind == "cpu" else SECONDS for part, share in SHARES.items()}
    choice, network_rate = _measure_network(device, work, rate, share["network"])
    thread_seconds = choice.seconds if choice else {}
    each = share["products"] / (NUM_PRODUCTS + OTHER_PRODUCTS if device.kind == "cpu" else 1)
    products = measure_products(device, work.format, each)
    fastest = max(products, key=lambda product: product.rate.fastest)
    by_threads = measure_by_threads(device, work.format, products, thread_seconds, OTHER_PRODUCTS * each)
    return Ceiling(
        rank=rank,
        host=host,
        device=device.name,
        format=work.format,
        side=fastest.side,
        product=fastest.rate,
        copy=measure_copy(device, share["copy"]),
        upload=measure_upload(device),
        all_reduce=measure_all_reduce(device, parallel),
        seed=network_rate,
        threads=device.threads,
        thread_seconds={str(count): took for count, took in thread_seconds.items()},
        threads_share=choice.share if choice else 0.0,
        thread_products={str(count): rate for count, rate in by_threads.items()},
    )


def _measure_network(
    device: Device, work: RankWork, rate: float, seconds: float
) -> tuple[ThreadChoice | None, Rate | None]:
    """Chooses the number of threads by passes of the network, and measures the rate with them.

    The choice is None if the device has no choice. The rate is None if one pass takes too long; the number of
    threads is then chosen by small products.
    """
    counts = device.thread_counts
    if len(counts) < 2:
        return None, _network_rate(device, work, rate, seconds)
    until = perf_counter() + seconds
    device.use_threads(counts[0])
    timed = _largest(device, work, rate, CLIMBING * seconds)
    if timed is not None and timed.batch_size == work.batch_size:
        choice = choose_threads(device, counts, timed.once, until - perf_counter())
        operations = work.operations(timed.batch_size)
        return choice, rate_of([operations / took for took in choice.times])
    once = Multiply(device, work.format, SMALL, SMALL, SMALL) if timed is None else timed.once
    choice = choose_threads(device, counts, once, until - CLIMBING * seconds - perf_counter())
    return choice, _network_rate(device, work, rate, until - perf_counter())


def examples_per_second(device: Device, work: RankWork, rate: float, seconds: float) -> tuple[float, bool]:
    """The training rate of one device, measured in about `seconds`, and whether it was measured. If one pass
    takes longer, it is estimated from `rate`, that of a small product on one thread in operations per
    second."""
    device.declare(work.format)
    _, found = _measure_network(device, work, rate, seconds)
    operations = found.typical if found else rate / SLOWER
    return operations / work.operations(1), found is not None


def _network_rate(device: Device, work: RankWork, rate: float, seconds: float) -> Rate | None:
    """Tensor operations per second of passes of the network; None if one pass takes longer than `seconds`,
    judging by the `rate` of products."""
    until = perf_counter() + seconds
    timed = _largest(device, work, rate, seconds)
    if timed is None:
        return None
    operations = work.operations(timed.batch_size)
    rates = [operations / timed.seconds]
    while perf_counter() + timed.seconds < until:
        rates.append(operations / _seconds(device, timed.once))
    return rate_of(rates)


def _largest(device: Device, work: RankWork, rate: float, seconds: float) -> _Timed | None:
    """The largest batch, up to the run's own, of which PASSES_NEEDED passes fit into `seconds`; None if the
    smallest one does not fit."""
    batch_size, network = min(LEAST_BATCH, work.batch_size), place_network(work.network, device)
    until, found = perf_counter() + seconds, None
    expected = SLOWER * work.operations(batch_size) / rate
    while perf_counter() + PASSES_NEEDED * expected < until:
        try:
            once = passes(network, device, work.format, batch_size)
            once()
            found = _Timed(once, batch_size, _seconds(device, once))
        except torch.OutOfMemoryError:
            device.clean()
            break
        if batch_size == work.batch_size:
            break
        larger = min(GROWTH * batch_size, work.batch_size)
        batch_size, expected = larger, found.seconds * larger / batch_size
    return found


def _seconds(device: Device, work: Callable[[], None]) -> float:
    device.synchronise()
    began = perf_counter()
    work()
    device.synchronise()
    return perf_counter() - began
