"""The loader's rate compared with the device's, and the bottleneck of a run, as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from aiperf.config import Config
from aiperf.data import Data, load
from aiperf.device import Device
from aiperf.measuring.before_span import RankWork, examples_per_second
from aiperf.measuring.loader import PASSES, LoaderRate, measure_loaders
from aiperf.tasks.registry import task_of
from aiperf.wording import figure, percent
from nas.graph import Graph


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
