"""The rate of the loader by itself and of each part of its work, compared with the rate of the device, and
the bottleneck of a run, as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from math import ceil, inf
from statistics import median
from time import perf_counter

from aiperf.config import Config
from aiperf.data import Data, Split, load
from aiperf.device import Device
from aiperf.measuring.network_times import examples_per_second
from aiperf.measuring.training_step import RankWork
from aiperf.tasks.registry import task_of
from aiperf.wording import counted, figure, percent
from nas.frozen import frozen
from nas.graph import Graph

PASSES = 3
"""Number of passes over the examples of the first pass, which are then in the file cache. An odd number has a
median that is one of them, so one pass that another program disturbs does not count."""
WARM_UP_SHARE = 0.2
"""Fraction of each pass that is not timed: until then the batches that were read ahead are used up, and the
memory has been allocated."""
STAGE_SHARE = 0.1
"""Time for each part of the work by itself, as a fraction of the time budget."""
STAGE_EXAMPLES = 256
"""Examples in one piece of each part's work: enough for all cores to have some."""
PACK = "; packed images need fewer, see `aiperf-hpc data pack`"
"""Remedy if decoding needs more cores than there are: packed images are decoded already."""
WAITING_TIMES = 1.5
"""If the slowest part alone is faster than the loader by more than this factor, the loader waits for
something else."""


@frozen
class LoaderRate:
    """Rate of the training stream of one rank, in examples per second."""

    examples_per_second: float
    """Median of the passes over examples that had been read before."""
    first_pass: float
    """Rate when these examples were read for the first time: from the disk, unless they were in the file
    cache already."""
    stages: Mapping[str, float]
    """Rate of each part of the work by itself, with all the cores that do it, by name."""
    cores: Mapping[str, int] = field(default_factory=dict)
    """Cores of one rank that do each part at once, by name."""

    @property
    def slowest(self) -> str:
        """What bounds the loader, in words: its slowest part, or waiting that no part explains."""
        if not self.stages:
            return "preparing the batches"
        slowest = min(self.stages, key=lambda name: self.stages[name])
        if self.stages[slowest] > WAITING_TIMES * self.examples_per_second:
            return "waiting for cores that others use"
        return slowest


def measure_loaders(
    splits: Sequence[Split], device: Device, batch_size: int, seconds: float
) -> list[LoaderRate]:
    """Measures the loader of each split for about `seconds`, after its first batch, which waits for processes
    to start.

    First each split is read once, so that none is compared with one that the file cache already held. Then
    the splits are read in turn, because the load of other programs on the cores changes with time.
    """
    share = seconds / (1 + PASSES)
    firsts = [_pass(split, device, batch_size, share) for split in splits]
    again = [
        [_pass(split, device, batch_size, share, steps)[0] for split, (_, steps) in zip(splits, firsts)]
        for _ in range(PASSES)
    ]
    stages = [_stages(split, device, STAGE_SHARE * seconds) for split in splits]
    return [
        LoaderRate(median(rates), first, *each)
        for rates, (first, _), each in zip(zip(*again), firsts, stages)
    ]


def _pass(
    split: Split, device: Device, batch_size: int, seconds: float, steps: float = inf
) -> tuple[float, int]:
    """Examples per second over the first steps of the stream, as many as fit into `seconds` and at most
    `steps`, and the number of these steps. Every pass reads the same examples."""
    stream = split.stream(batch_size, seed=0)
    next(stream)
    began = now = perf_counter()
    since, examples, done = began, 0, 0
    while not done or (now - began < seconds and done < steps):
        shown, _ = next(stream)
        examples, done = examples + len(shown), done + 1
        device.synchronise()
        now = perf_counter()
        if now - began < WARM_UP_SHARE * seconds and done < WARM_UP_SHARE * steps:
            since, examples = now, 0
    return examples / (now - since), done


def _stages(split: Split, device: Device, seconds: float) -> tuple[dict[str, float], dict[str, int]]:
    """Rate and cores of each part."""
    number = min(STAGE_EXAMPLES, split.num_examples)
    parts = split.stages(number)
    rates = {
        stage.name: stage.workers * number * _times_per_second(stage.once, device, seconds) for stage in parts
    }
    return rates, {stage.name: stage.workers for stage in parts}


def _times_per_second(once: Callable[[], object], device: Device, seconds: float) -> float:
    """Rate of a piece of work by the fastest one that was timed, because slower ones were disturbed by other
    programs."""
    until, fastest = perf_counter() + seconds, float("inf")
    while fastest == float("inf") or perf_counter() < until:
        began = perf_counter()
        once()
        device.synchronise()
        fastest = min(fastest, perf_counter() - began)
    return 1 / fastest


def bench_text(
    configs: Sequence[Config],
    seed: Graph,
    device: Device,
    products: Mapping[str, float],
    ranks: int,
    seconds: float,
) -> str:
    """Rates of loader and device for the first configuration; for the others, which differ only in their
    data, the rate of the loader.

    `products` are the rates of `format_rates`; `ranks` share the cores of this host. Raises AiperfError.
    """
    config = configs[0]
    sets = [_loaded(each, device, ranks) for each in configs]
    loaders = measure_loaders([each.train for each in sets], device, config.training.batch_size, seconds)
    format = config.training.format
    work = RankWork(seed, format, config.training.batch_size)
    needed, measured = examples_per_second(device, work, products[format], seconds)
    origin = "measured" if measured else "estimated, for one step takes too long"
    who = f"{device.name} with the seed {config.seed_architecture}, {format}"
    task = task_of(config.data)

    def told(rate: float) -> str:
        return f"{figure(task.amount.rate(rate, config.data.size))} {task.amount.name} per second"

    lines = [
        (f"{task.example}s", _data(config)),
        *_rates(loaders[0], told),
        *((f"  {name} alone", told(rate)) for name, rate in loaders[0].stages.items()),
        ("the device needs", f"{told(needed)}: {who} ({origin})"),
        ("bottleneck", bottleneck(loaders[0], needed)),
        *([("cores of the host", cores_text(loaders[0], needed, ranks))] if loaders[0].stages else []),
    ]
    for other, loader, data in zip(configs[1:], loaders[1:], sets[1:]):
        # Packed images have the SHA-256 of the folder that they were packed from.
        same = data.manifest["sha256"] == sets[0].manifest["sha256"]
        lines += [
            ("beside it", _data(other) + ("" if same else f"; these are other {task.example}s")),
            *_rates(
                loader, told, f"; {_compared(loaders[0].examples_per_second, loader.examples_per_second)}"
            ),
        ]
    return "\n".join(f"{name + ' ':.<22} {text}" for name, text in lines)


def bottleneck(loader: LoaderRate, needed: float) -> str:
    """What a run would wait for, if the device needs `needed` examples per second."""
    times = loader.examples_per_second / needed
    if times < 1:
        return f"{loader.slowest}: the loader gives {percent(times, 0)} of what the device needs"
    if loader.stages and loader.first_pass < needed:
        return (
            f"the disk, in the first pass: it gives {percent(loader.first_pass / needed, 0)} of what the "
            f"device needs; from the file cache none, the loader is {figure(times)} times as fast as needed"
        )
    return f"none: the loader is {figure(times)} times as fast as the device needs"


def cores_text(loader: LoaderRate, needed: float, devices: int) -> str:
    """What is missing for all devices of the host, if each needs `needed` examples per second: the cores for
    the part of the work that takes the most of them."""
    name = min(loader.stages, key=lambda part: loader.stages[part] / loader.cores[part])
    of_core, available = loader.stages[name] / loader.cores[name], loader.cores[name] * devices
    wanted = ceil(needed * devices / of_core)
    use = f"{name} for {counted(devices, 'device')} needs {counted(wanted, 'core')}, and uses {available}"
    if wanted <= available:
        return f"none is missing: {use}"
    remedy = PACK if name == "decoding" else ""
    return f"{counted(wanted - available, 'core')} missing: {use}{remedy}"


def _rates(loader: LoaderRate, told: Callable[[float], str], more: str = "") -> list[tuple[str, str]]:
    """Rows with the rate of the loader. Arrays have no stages and no first pass, because they are on the
    device and nothing is read."""
    cached = f" from the file cache, median of {PASSES} passes" if loader.stages else ""
    rate = ("loader", f"{told(loader.examples_per_second)} for one rank{cached}{more}")
    first = ("  first pass", f"{told(loader.first_pass)}, with the files as they were found")
    return [rate, first] if loader.stages else [rate]


def _compared(first: float, other: float) -> str:
    """A comparison of two rates, as the factor that is above 1."""
    if first >= other:
        return f"the first loader is {first / other:.1f} times as fast"
    return f"this loader is {other / first:.1f} times as fast as the first"


def _loaded(config: Config, device: Device, ranks: int) -> Data:
    return load(config.data, device.torch, config.random_seed, ranks)


def _data(config: Config) -> str:
    data = config.data
    examples = task_of(data).examples(data).text
    return f"{data.name} {data.path}, {examples}, augmentation {data.augmentation}".replace(" ,", ",")
