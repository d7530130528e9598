"""Ceilings of a device: the highest rates of short, simple work, namely matrix products, copies and
all-reduces.

A ceiling is the rate of the fastest of many short windows, each with the device synchronised at both ends:
slower windows were disturbed by something. On a CPU, where a call returns when its work is done, it is the
fastest single piece of work, because other processes run within a window. The data is random, because zeros
take less power and run faster (H. He, "Strangely, Matrix Multiplications on GPUs Run Faster When Given
'Predictable' Data!", 2024).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from statistics import median
from time import perf_counter

import torch

from aiperf.device import Device
from aiperf.device.device import SIXTEEN_BIT, memory_errors
from aiperf.errors import WorldError
from aiperf.parallel.parallel import Parallel
from aiperf.wire.reports import Rate
from nas.frozen import frozen

SIDES: Mapping[str, Sequence[int]] = {
    # From the smallest up: an emulated format is fastest there, and takes minutes for large matrices.
    "cpu": (32, 64, 128, 256, 512, 1024, 2048),
    "accelerator": (2048, 4096, 8192, 16384),
}
TALL = (8192, 64)
"""Rows and side of the tall product, which has the shape of a convolution of many images with few
channels."""
ROTATED = 3  # pairs of matrices used in turn, so that none is in a cache because it was just used
WINDOW_SECONDS = 0.04
"""Length of a window: long compared with a call, short compared with what disturbs it."""
LEAST_WINDOWS = 3
"""With fewer, one disturbed window could be the median."""
LEAST_PIECES = 2 + LEAST_WINDOWS
"""Pieces of one kind of work that must fit into its time for it to be measured: two to warm up, and one per
window."""
SECONDS = 0.5  # time for one kind of work and one size
# Larger than the caches of accelerators and of most CPUs. The largest CPUs, with 256 MiB of cache and more,
# copy within it, so their memory ceiling comes out too high.
COPY_BYTES: Mapping[str, int] = {"cpu": 128 << 20, "accelerator": 2 << 30}
UPLOAD_BYTES = 256 << 20
"""Size of an upload, long enough to reach the rate of the bus."""
SUM_BYTES = 16 << 20
"""Size of a sum over the group: about the gradients of a network of four million parameters."""
SUMS = 12
"""Number of sums over the group, as all ranks must make the same number."""


@frozen
class ProductRate:
    """Rate of a matrix product of one shape, in operations per second."""

    side: int
    """Side of the square matrices; 0 for the tall product."""
    rate: Rate

    @property
    def operations(self) -> int:
        """Operations of one product."""
        return _operations(self.side)


def measure_products(device: Device, format: str, seconds: float) -> tuple[ProductRate, ...]:
    """Rates of products in the format, for each side that fits into the memory and the time; `seconds` is the
    time for each.

    Raises WorldError if the device does not support the format, or has no memory left.
    """
    device.declare(format)
    found = tuple(_products(device, format, seconds))
    if not found:
        raise _full(device, "the smallest matrices")
    return found


def measure_by_threads(
    device: Device,
    format: str,
    products: Sequence[ProductRate],
    thread_seconds: Mapping[int, float],
    seconds: float,
) -> Mapping[int, Rate]:
    """Rate of the fastest product by number of threads. For the number in use it is taken from `products`;
    for the other numbers that could be chosen it is measured, in about `seconds` for all of them.

    `thread_seconds` is the time of the run's own work by number of threads. A product is expected to be
    slower with another number by the same factor as that work, or by the ratio of the numbers. If the product
    would then take too long, a smaller one is timed; if none fits, the number is left out. The result is
    empty if there are no other numbers.
    """
    used, others = device.threads, sorted(thread_seconds.keys() - {device.threads})
    found = {used: max((product.rate for product in products), key=lambda rate: rate.fastest)}
    for count in others:
        slower = max(thread_seconds[count] / thread_seconds[used], used / count)
        device.use_threads(count)
        rates = list(_again(device, format, products, slower, seconds / len(others)))
        device.use_threads(used)
        if rates:
            found[count] = max(rates, key=lambda rate: rate.fastest)
    return {count: found[count] for count in sorted(found)} if others else {}


def _again(
    device: Device, format: str, products: Sequence[ProductRate], slower: float, seconds: float
) -> Iterator[Rate]:
    """Rates of the fastest product of which LEAST_PIECES fit into half of `seconds`, if it takes `slower`
    times as long as before, and of the next larger one, because more threads are fastest with larger
    matrices."""
    half = seconds / 2
    fitting = [
        product
        for product in products
        if LEAST_PIECES * product.operations * slower <= half * product.rate.typical
    ]
    if fitting:
        best = max(fitting, key=lambda product: product.rate.fastest)
        for product in fitting:
            if product.side in (best.side, 2 * best.side):
                yield _rate(device, _multiply(device, format, product.side), product.operations, half)


def measure_copy(device: Device, seconds: float) -> Rate:
    """Bytes read plus written per second within the device's memory. Raises WorldError if the memory is
    full."""
    num_bytes = min(COPY_BYTES[_size(device)], device.memory_bytes // 16)
    try:
        with memory_errors():
            source = _bytes(num_bytes, device.torch)
            target = torch.empty_like(source)
    except torch.OutOfMemoryError:
        raise _full(device, f"two blocks of {num_bytes >> 20} MiB") from None
    return _rate(device, lambda: target.copy_(source), 2 * source.nbytes, seconds)


def measure_upload(device: Device, seconds: float) -> Rate | None:
    """Bytes per second from pinned host memory to the device; None for a CPU.

    Raises WorldError if the memory of the device is full.
    """
    if device.kind == "cpu":
        return None
    source = _bytes(UPLOAD_BYTES, torch.device("cpu")).pin_memory()
    try:
        with memory_errors():
            target = torch.empty_like(source, device=device.torch)
    except torch.OutOfMemoryError:
        raise _full(device, f"{UPLOAD_BYTES >> 20} MiB") from None
    return _rate(device, lambda: target.copy_(source, non_blocking=True), source.nbytes, seconds)


def _full(device: Device, what: str) -> WorldError:
    return WorldError(
        f"{device.name} (index {device.index}) has no memory for {what}: stop other programs that use it"
    )


def _products(device: Device, format: str, seconds: float) -> Iterator[ProductRate]:
    """Products from the smallest side up, as long as the next one fits into the time: a CPU without
    instructions for bf16 needs minutes for what others do in milliseconds, and is no faster on larger
    matrices."""
    fastest = math.inf
    for side in (*SIDES[_size(device)], *([0] if device.kind == "cpu" else [])):
        operations = _operations(side)
        if LEAST_PIECES * operations > seconds * fastest and fastest < math.inf:
            continue
        try:
            with memory_errors():
                rate = _rate(device, _multiply(device, format, side), operations, seconds)
        except torch.OutOfMemoryError:
            device.clean()
            return
        fastest = rate.fastest
        yield ProductRate(side, rate)


def _shape(side: int) -> tuple[int, int, int]:
    """Rows, inner side and columns."""
    return (side, side, side) if side else (TALL[0], TALL[1], TALL[1])


def _operations(side: int) -> int:
    return 2 * math.prod(_shape(side))


def _multiply(device: Device, format: str, side: int) -> Multiply:
    return Multiply(device, format, *_shape(side))


class Multiply:
    """The next pair of matrices, multiplied: (rows, inner) with (inner, columns)."""

    def __init__(self, device: Device, format: str, rows: int, inner: int, columns: int) -> None:
        pairs = [
            (_matrix(rows, inner, device, format), _matrix(inner, columns, device, format))
            for _ in range(ROTATED)
        ]
        self._pairs = cycle(pairs)
        self._out = torch.empty_like(_matrix(rows, columns, device, format))

    def __call__(self) -> object:
        left, right = next(self._pairs)
        return torch.mm(left, right, out=self._out)


def measure_all_reduce(device: Device, parallel: Parallel) -> Rate | None:
    """Bytes per second of a tensor that is summed over the group. It must be called by all ranks of the
    group; None for a group of one rank."""
    if parallel.ranks == 1:
        return None
    values = _bytes(SUM_BYTES, device.torch)
    windows = []
    for _ in range(SUMS):  # a number that all ranks know
        device.synchronise()
        began = perf_counter()
        parallel.sum(values)
        device.synchronise()
        windows.append(values.nbytes / (perf_counter() - began))
    return rate_of(windows)


def _rate(device: Device, work: Callable[[], object], amount: float, seconds: float) -> Rate:
    """Rate of a piece of work that does `amount` of something, per second, after two pieces of warm-up."""
    work()
    device.synchronise()
    began = perf_counter()
    work()
    device.synchronise()
    window = min(WINDOW_SECONDS, seconds / LEAST_PIECES)
    pieces = max(1, round(window / max(perf_counter() - began, 1e-9)))
    until, windows = perf_counter() + seconds, list[float]()
    single = list[float]()
    while len(windows) < LEAST_WINDOWS or perf_counter() < until:
        began = last = perf_counter()
        for _ in range(pieces):
            work()
            if device.kind == "cpu":
                before, last = last, perf_counter()
                single.append(amount / (last - before))
        device.synchronise()
        windows.append(amount * pieces / (perf_counter() - began))
    return rate_of(windows, max(single, default=0.0))


def rate_of(windows: Sequence[float], fastest: float = 0.0) -> Rate:
    """The rate from the rates of short windows, and from that of the fastest single piece of work, if
    known."""
    typical = median(windows)
    # 1.4826 makes the median deviation of a normal distribution its standard deviation.
    spread = 1.4826 * median(abs(window - typical) for window in windows) / typical
    return Rate(max(fastest, *windows), typical, spread)


def _matrix(rows: int, columns: int, device: Device, format: str) -> torch.Tensor:
    return torch.randn(rows, columns, device=device.torch).to(SIXTEEN_BIT.get(format, torch.float32))


def _bytes(num_bytes: int, where: torch.device) -> torch.Tensor:
    """A tensor of `num_bytes` of random numbers; above 1 MiB rounded down to whole MiB."""
    block = torch.rand(min(num_bytes, 1 << 20) // 4, device=where)
    return block.repeat(max(1, num_bytes >> 20))


def _size(device: Device) -> str:
    return "cpu" if device.kind == "cpu" else "accelerator"
