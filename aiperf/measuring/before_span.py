"""What a rank finds out about its device before the span: threads, ceilings, the rate of the run's own work.

A step of torch cannot be interrupted. So whatever is timed on a processor begins small, and the next size is
taken only where the time of the last one says that it fits.
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
from aiperf.measuring.training_step import passes, placed
from aiperf.parallel.parallel import Parallel
from aiperf.wire.messages import Ceiling, Rate
from nas.graph import Graph
from nas.ops import TENSOR_OPS

SHARES: Mapping[str, float] = {"network": 0.6, "products": 0.3, "copy": 0.1}
"""Of a processor's time for its ceilings."""
CLIMBING = 0.4
"""Of the network's share: to find the batch that fits, and again for its rate where that is not the run's
own."""
NUM_PRODUCTS = 8
OTHER_PRODUCTS = 2
"""As much time as so many products take: for the other numbers of threads together."""
SLOWER = 4.0
"""Times the products alone: what a first step is expected to take."""
GROWTH = 4
"""Of the batch, between two sizes."""
SMALL = 256
"""Side of the product by which formats, and at need threads, are compared."""
PASSES_NEEDED = 2
"""Of a size: one to warm up, one to time. So many must fit into the time."""


@dataclass(frozen=True)
class RankWork:
    """What a run does on one rank: forward and backward passes of a network."""

    network: Graph
    """The seed, or the network that is typical of the run: `nas.search.typical`."""
    format: str
    batch_size: int
    """Examples of one rank in a step."""

    def operations(self, batch_size: int) -> int:
        """Tensor operations of one pass."""
        return batch_size * self.network.cost.train.price(TENSOR_OPS)


@dataclass(frozen=True)
class _Timed:
    """Passes of so many examples, and what they take."""

    once: Callable[[], None]
    batch_size: int
    seconds: float


def measure(
    device: Device, work: RankWork, parallel: Parallel, rank: int, host: str, rate: float, seconds: float
) -> Ceiling:
    """A processor takes about so many seconds, another device a few.

    `rate` is that of a small product on one thread, operations a second. Called by all ranks of a group.
    Raises WorldError where the device does not have the format, or no room.
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
    """Times passes of the network on one thread and on more: the number of threads, and the rate with them.
    The first is None where nothing is to choose; the second where one pass takes too long, and small products
    choose."""
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
    """The rate of training on one device, measured in about so many seconds; False where one pass takes
    longer, and it is estimated by `rate`, that of a small product on one thread."""
    device.declare(work.format)
    _, found = _measure_network(device, work, rate, seconds)
    operations = found.typical if found else rate / SLOWER
    return operations / work.operations(1), found is not None


def _network_rate(device: Device, work: RankWork, rate: float, seconds: float) -> Rate | None:
    """Tensor operations a second of passes of the network; None where one takes too long for these seconds,
    by the `rate` of products."""
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
    """The largest batch up to the run's own of which some passes fit into these seconds."""
    batch_size, network = min(LEAST_BATCH, work.batch_size), placed(work.network, device)
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
