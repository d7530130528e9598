"""What the program chooses for an accelerator, beside what it does not choose: number format, layout,
autotuning, and the size of the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import torch

from aiperf.device import Device, bind
from aiperf.device.device import memory_errors
from aiperf.engines.engine import Engine, Passes
from aiperf.engines.objective import objective_of
from aiperf.measuring.training_step import batch, place_network
from aiperf.training.optimizers import FUSED
from benchmarks.on_device.control import SIDE, SMALL_SIDE, in_turn, prepare
from benchmarks.on_device.engines import usable
from benchmarks.on_device.meter import Meter
from benchmarks.on_device.parts import Setting
from benchmarks.on_device.rows import Figures, Row, figures, row
from nas.graph import Graph
from nas.seeds import resnet50

BATCH, SMALL_BATCH = 128, 2
ROUNDS, SECONDS, SMALL_SECONDS = 3, 0.5, 0.1
FASTER = 1.03
"""Times the rate of the program's choice above which another one is called faster."""
SIZES, SMALL_SIZES = (32, 64, 128, 256, 512), (2, 4)
CHOICE = "as the program trains"
UNTUNED_MORE = 8
"""Images that the step without autotuning has more: cuDNN's plans are remembered by shape, also those that
were tried out (`benchmark_cache` of ATen/native/cudnn/Conv_v8.cpp)."""


@dataclass(frozen=True)
class Variant:
    """A way to make the eager step."""

    format: str
    layout: torch.memory_format
    tuned: bool = True
    more_images: int = 0


def measure(setting: Setting) -> Iterator[Figures]:
    """Nothing of it is a fault; a variant that is faster than the program's choice is called so."""
    device = bind(setting.kind, 0)
    variants, meter = _variants(device), Meter(device)
    for rates in _in_turn(device, setting, variants, meter):
        yield _found(setting, variants, {name: median(each) for name, each in rates.items()}, meter)


def _found(
    setting: Setting, variants: Mapping[str, Variant], rates: Mapping[str, float], meter: Meter
) -> Figures:
    """The figures of the rounds that were made so far."""
    rows, slow = list[Row](), list[str]()
    expected = rates[CHOICE]
    for name, rate in rates.items():
        rows.append(row(name, rate, "images/s", expected, CHOICE, use=meter.use(name)))
        if rate > FASTER * expected and not setting.is_small:
            slow.append(f"{name}: {rate / expected:.2f} times the rate of what the program does")
    chosen = variants[CHOICE]
    notes = [f"The program's choice here: {chosen.format}, {_named(chosen.layout)}, autotuned; eager steps."]
    return figures(rows, slow=slow, notes=notes, smaller=_smaller(setting))


def _variants(device: Device) -> Mapping[str, Variant]:
    """The program's choice, then what differs in one thing each."""
    first, layout = device.formats[0], device.layout
    other = torch.contiguous_format if layout is torch.channels_last else torch.channels_last
    found = {CHOICE: Variant(first, layout)}
    found |= {f"in {format}": Variant(format, layout) for format in device.formats[1:]}
    if device.kind != "npu":  # it refuses every other one
        found[f"{_named(other)} images and weights"] = Variant(first, other)
    if device.kind == "cuda":
        found["without autotuning"] = Variant(first, layout, tuned=False, more_images=UNTUNED_MORE)
    return found


def _named(layout: torch.memory_format) -> str:
    return str(layout).removeprefix("torch.").removesuffix("_format")


def _in_turn(
    device: Device, setting: Setting, variants: Mapping[str, Variant], meter: Meter
) -> Iterator[dict[str, list[float]]]:
    """Images per second of each variant in the rounds so far, after each round."""
    graph = resnet50((3,) + 2 * (setting.sized(SIDE, SMALL_SIDE),), 1000)
    size, seconds = setting.sized(BATCH, SMALL_BATCH), setting.sized(SECONDS, SMALL_SECONDS)
    steps = {name: _step(device, graph, variant, size) for name, variant in variants.items()}
    rates: dict[str, list[float]] = {name: [] for name in variants}
    numbers = {name: max(1, round(seconds / timed(device, step, 1))) for name, step in steps.items()}
    for _ in range(ROUNDS):
        for name, step in steps.items():
            images = numbers[name] * (size + variants[name].more_images)
            with meter.during(name):
                rates[name].append(images / timed(device, step, numbers[name]))
        yield rates


def _step(device: Device, graph: Graph, variant: Variant, size: int) -> Callable[[], None]:
    """A function that makes a step of a variant, once warm."""
    scaler = torch.amp.GradScaler(device.kind, enabled=variant.format == "fp16")
    network = place_network(graph, device)
    network.place(device.torch, variant.layout)
    images, labels = batch(graph, device, size + variant.more_images)
    images = images.contiguous(memory_format=variant.layout)
    engine = Engine(Passes(network, device, variant.format, scaler, objective_of(network.graph)))
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9, fused=device.kind in FUSED)

    def step() -> None:
        device.declare(variant.format)
        with nullcontext() if variant.tuned else device.untuned():
            engine.step(images, labels)
        scaler.step(optimizer)
        scaler.update()

    for _ in range(2):
        step()
    return step


def timed(device: Device, step: Callable[[], None], number: int) -> float:
    device.synchronise()
    began = perf_counter()
    for _ in range(number):
        step()
    device.synchronise()
    return perf_counter() - began


def measure_sizes(setting: Setting) -> Iterator[Figures]:
    """Rates of the engines at each size of the batch; a size that does not fit is a row."""
    device = bind(setting.kind, 0)
    format = device.formats[0]
    device.declare(format)
    names = usable(device, setting)
    graph = resnet50((3,) + 2 * (setting.sized(SIDE, SMALL_SIDE),), 1000)
    rows, meter = list[Row](), Meter(device)
    found = figures(rows, notes=[f"Steps in {format} with their optimizer."], smaller=_smaller(setting))
    for size in setting.sized(SIZES, SMALL_SIZES):
        device.clean()
        try:
            with memory_errors():
                rows += _of_size(
                    device, graph, format, size, names, setting.sized(SECONDS, SMALL_SECONDS), meter
                )
        except torch.OutOfMemoryError:
            rows.append(row(f"{size} images", "does not fit into memory"))
        yield found


def _of_size(
    device: Device, graph: Graph, format: str, size: int, names: list[str], seconds: float, meter: Meter
) -> list[Row]:
    prepared = prepare(device, graph, format, size, names)
    of_size = {f"{size} images, {name}": engine for name, engine in prepared.engines.items()}
    prepared.engines.clear()
    prepared.engines.update(of_size)
    *_, rates = in_turn(prepared, seconds, ROUNDS, meter)
    for engine in of_size.values():
        engine.release()
    return [row(name, median(each), "images/s", use=meter.use(name)) for name, each in rates.items()] + [
        row(f"{size} images, {name}", reason) for name, reason in prepared.unusable.items()
    ]


def _smaller(setting: Setting) -> str:
    return f"{SMALL_SIDE}² in place of {SIDE}², few images a step" if setting.is_small else ""
