"""Shows by how much a second thread shortens each part of a training step on this processor.

    OMP_WAIT_POLICY=passive python -m benchmarks.cores [--networks NAME …] [--formats bf16 fp32]

Prints the table of docs/performance.md. Times are processor times of each thread, from the clocks of the
kernel, so other programs disturb them little; threads that wait must sleep, hence the variable. Steps on one
thread and on two are made in turn, and of each operation the least time of all rounds counts. Its time on two
idle cores is then at least that of its busier thread. The gradients of a convolution are computed one by one.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from aiperf.device import Device, bind
from aiperf.engines import fused
from aiperf.engines.engine import Engine
from aiperf.engines.fused import c_backend, image_steps
from aiperf.engines.registry import KINDS
from aiperf.measuring.step_times import bench_of
from benchmarks.script import head, row
from benchmarks.steps import WORKS, Work, fastest_product
from nas.text_seeds import TEXT_SEEDS

COPIED_BYTES = 2**27
"""Size of the tensor that is copied: more than a core's own caches hold."""
COPIES = 10
GRADIENTS = ("to images", "to weights", "to bias")
KERNEL_CLOCK = 6
"""Lowest bits of the number of a thread's clock: processor time of one thread (Linux, posix-timers.h)."""
PARTS: Mapping[str, str] = {
    "aten.convolution.": "convolutions, forward",
    "batchnorm_": "batch norm, addition, ReLU",
    "native_batch_norm": "batch norm",
    "aten.mm.": "matrix products",
    "aten.addmm.": "matrix products",
    "aten.bmm.": "matrix products",
    "attention": "attention",
    "aten._to_copy": "copies and casts",
    "aten.copy_": "copies and casts",
    "aten.clone": "copies and casts",
    "_fused_sgd_": "optimizer",
    "rms_": "RMS norm",
    "turn": "rotary positions",
    "softmax": "loss",
    "nll_loss": "loss",
    "silu": "gates",
    "aten.mul.": "multiplications",
    "aten.add": "additions",
    "threshold_backward": "ReLU",
    "relu": "ReLU",
    "pool": "pooling",
    "embedding": "embedding",
}
"""The name of a part by a piece of the names of its operations; the first piece that fits counts."""

Spent = tuple[int, int]
"""Processor time of the calling thread and of all others, in nanoseconds."""


@dataclass(frozen=True)
class Operation:
    """An operation of a step, and the processor time that it took."""

    name: str
    spent: Spent

    @property
    def part(self) -> str:
        return next((part for piece, part in PARTS.items() if piece in self.name), self.name)


def spent() -> Spent:
    """The time of the threads of this process so far. Those of torch sleep between its operations."""
    others = (int(name) for name in os.listdir("/proc/self/task") if int(name) != os.getpid())
    return time.thread_time_ns(), sum(time.clock_gettime_ns(~thread << 3 | KERNEL_CLOCK) for thread in others)


class Recorded(TorchDispatchMode):
    """Records all operations of torch, and the fused kernels, while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Operation] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> object:
        if func is not torch.ops.aten.convolution_backward.default:
            return self.timed(str(func), lambda: func(*args, **(kwargs or {})))
        *given, mask = args
        found: list[object] = [None] * len(mask)
        for place, is_needed in enumerate(mask):
            if is_needed:
                alone = [place == other for other in range(len(mask))]
                name = f"convolutions, {GRADIENTS[place]}"
                found[place] = self.timed(name, lambda alone=alone: func(*given, alone))[place]  # type: ignore[misc]
        return tuple(found)

    def timed(self, name: str, work: Callable[[], Any]) -> Any:
        """What the work returns; its time is recorded."""
        before = spent()
        found = work()
        after = spent()
        self.operations.append(Operation(name, (after[0] - before[0], after[1] - before[1])))
        return found

    @contextmanager
    def kernels(self) -> Iterator[None]:
        """A context in which the calls of fused kernels are recorded too."""
        modules, call = (c_backend, image_steps), c_backend.call

        def recorded(name: str, *arguments: object) -> None:
            self.timed(name, lambda: call(name, *arguments))

        for module in modules:
            vars(module)["call"] = recorded
        try:
            yield
        finally:
            for module in modules:
                vars(module)["call"] = call


def operations(step: Callable[[], object], threads: int) -> list[Operation]:
    """The operations of one step with this number of threads."""
    torch.set_num_threads(threads)
    recorded = Recorded()
    with recorded, recorded.kernels():
        step()
    return recorded.operations


def least(one: Sequence[Operation], other: Sequence[Operation]) -> list[Operation]:
    """The same operations of two steps, each with its smaller times."""
    return [
        Operation(a.name, (min(a.spent[0], b.spent[0]), min(a.spent[1], b.spent[1])))
        for a, b in zip(one, other, strict=True)
    ]


def step_of(work: Work, format: str, device: Device, engine: str) -> Callable[[], object]:
    """A training step by this engine, with the optimizer's."""
    bench = bench_of(device, work.graph, format, work.batch_size)
    made: Engine = KINDS[engine](bench.eager.passes)
    optimizer = torch.optim.SGD(made.passes.network.parameters(), lr=1e-4, momentum=0.9, fused=True)

    def step() -> None:
        made.step(bench.examples, bench.labels)
        optimizer.step()

    return step


def copy_rate() -> float:
    """Bytes read and written per second of the busier thread by copying a large tensor."""
    source = torch.ones(COPIED_BYTES // 4)
    into = torch.empty_like(source)
    times = []
    for _ in range(COPIES):
        before = spent()
        into.copy_(source)
        times.append(max(after - since for since, after in zip(before, spent())))
    return 2 * COPIED_BYTES / (min(times) / 1e9)


def rows(one: Sequence[Operation], two: Sequence[Operation]) -> Iterator[tuple[object, ...]]:
    """The parts of a step, the longest first, and their sum: milliseconds on one thread, of each of two
    threads, and what the second gains."""
    parts: dict[str, list[tuple[int, int, int, int]]] = defaultdict(list)
    for alone, pair in zip(one, two, strict=True):
        parts[alone.part].append((sum(alone.spent), *pair.spent, max(pair.spent)))
    sums = {part: [sum(column) for column in zip(*times)] for part, times in parts.items()}
    whole = [sum(column) for column in zip(*sums.values())]
    lesser = [part for part, times in sums.items() if times[0] < whole[0] / 100]
    rest = [sum(column) for column in zip(*(sums.pop(part) for part in lesser))]
    for part, times in sorted(sums.items(), key=lambda each: -each[1][0]):
        yield part, *_cells(times, whole[0])
    if rest:
        yield "the rest, each below 1 %", *_cells(rest, whole[0])
    yield "**all**", *_cells(whole, whole[0])


def _cells(times: Sequence[int], whole: int) -> tuple[str, ...]:
    alone, first, second, longer = times
    milliseconds = [f"{each / 1e6:.1f}" for each in (alone, first, second)]
    return f"{100 * alone / whole:.0f} %", *milliseconds, f"{alone / max(1, longer):.2f}"


NETWORKS: Mapping[str, Callable[[], Work]] = {
    **WORKS,
    **{name: lambda seed=seed: Work(seed(), 4) for name, seed in TEXT_SEEDS.items()},  # type: ignore[misc]
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", default=["ResNet-50"], choices=list(NETWORKS))
    parser.add_argument("--formats", nargs="+", default=["bf16", "fp32"], choices=["bf16", "fp32"])
    parser.add_argument("--engine", default="fused", choices=[Engine.name, fused.Fused.name])
    parser.add_argument("--rounds", type=int, default=10)
    asked = parser.parse_args(arguments)
    if os.environ.get("OMP_WAIT_POLICY") != "passive":
        raise SystemExit("threads that wait would use the processor; set OMP_WAIT_POLICY=passive")
    device = bind("cpu", 0)
    print(
        head("network", "format", "part", "share", "one thread ms", "of two, first ms", "second ms", "gain")
    )
    for name in asked.networks:
        for format in asked.formats:
            step = step_of(NETWORKS[name](), format, device, asked.engine)
            step()  # the optimizer makes its momentum in the first one
            found = {threads: operations(step, threads) for threads in (1, 2)}
            for _ in range(asked.rounds):
                found = {count: least(so_far, operations(step, count)) for count, so_far in found.items()}
            for cells in rows(found[1], found[2]):
                print(row(name, format, *cells), flush=True)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        products = ", ".join(
            f"{format} {fastest_product(device, format) / 1e9:.0f}" for format in asked.formats
        )
        print(f"{threads} threads: copies {copy_rate() / 1e9:.1f} GB/s; products, GMAC/s: {products}")
    print("load averages:", *os.getloadavg())


if __name__ == "__main__":
    main()
