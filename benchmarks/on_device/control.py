"""Training steps of ResNet-50 v1.5 by the engines in turn, beside published rates and what is possible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import torch
from torch import Tensor

from aiperf.device import Device, bind
from aiperf.device.device import memory_errors
from aiperf.engines.agreement import prepare_and_check
from aiperf.engines.engine import Engine, Passes
from aiperf.engines.fused import Fused
from aiperf.engines.objective import objective_of
from aiperf.engines.registry import KINDS, FusedGraphed
from aiperf.hardware.peak import peak_ops_per_second
from aiperf.measuring.ceiling import SECONDS, measure_copy, measure_products
from aiperf.measuring.training_step import batch, place_network
from aiperf.parallel.parallel import Solo
from aiperf.training.optimizers import FUSED
from analysis.readings.limits import Limits
from analysis.readings.roofline import example_seconds
from benchmarks.on_device.engines import unused
from benchmarks.on_device.meter import Meter
from benchmarks.on_device.parts import Setting
from benchmarks.on_device.rows import Figures, Row, figures, row
from nas.graph import Graph
from nas.ops import TENSOR_OPS
from nas.seeds import resnet50

SIDE, CLASSES, BATCH = 224, 1000, 256
SMALL_SIDE, SMALL_BATCH = 64, 8
ROUNDS, SMALL_ROUNDS = 5, 3
ROUND_SECONDS, SMALL_ROUND_SECONDS = 1.0, 1.0
PUBLISHED_BY = "milabench"
"""Who published a rate that the eager step should reach, because it was measured with PyTorch alone; those of
MLPerf are tuned by hand."""
FUSED_GAIN = 1.4
"""Rate of the best fused step relative to the eager one that is aimed at. The rooflines below are a factor of
1.35 apart, and PyTorch's published eager step reaches less than two thirds of its own."""
SLOWER = 0.98
"""Rate relative to the eager one below which an engine is called slower: rounds differ by a per cent."""
MARKED_FORMAT = "bf16"
"""The format of the marks that was chosen here; the goals hold for it only."""


@dataclass(frozen=True)
class Mark:
    """A rate that others published, or that is aimed at."""

    who: str
    device: str
    examples_per_second: float


H200 = "NVIDIA H200"
MARKS = (
    Mark("milabench, H200", H200, 4868.0),
    Mark("MLPerf 4.0, H200 of 8", H200, 7950.0),
    Mark("goal, H200, separate", H200, 6500.0),
    Mark("H200 roofline, separate", H200, 7700.0),
    Mark("H200 roofline, fused", H200, 10400.0),
    Mark("milabench, H100", "NVIDIA H100 80GB HBM3", 4013.0),
    Mark("MLPerf 4.0, H100 of 8", "NVIDIA H100 80GB HBM3", 7161.0),
    Mark("MXNet, A100", "NVIDIA A100-SXM4-80GB", 3410.0),
    Mark("PyTorch AMP, A100", "NVIDIA A100-SXM4-80GB", 2470.0),
)
"""ResNet-50 v1.5 at 224² in 16 bits; those of MLPerf are steps that NVIDIA tuned by hand. Sources stand in
docs/performance.md. A device of which there is none is shown beside the H200's, without a ratio."""
NOTE = (
    "A ratio to a mark stands only where device, format and size are the mark's own. Separate, fused: "
    "with batch norm read and written by itself, or joined with its neighbours."
)


@dataclass(frozen=True)
class Prepared:
    """The engines that make the eager step, on one batch."""

    eager: Engine
    engines: dict[str, Engine]
    seconds: dict[str, float]
    """To prepare each."""
    unusable: dict[str, str]
    images: Tensor
    labels: Tensor


def measure(setting: Setting, only: str = "") -> Iterator[Figures]:
    """Images per second by engine; an engine that can be used and does not make the eager step is a fault.
    `only` is an engine next to the eager one; without it all are timed but the compiled one, which takes
    minutes. The eager one is timed alone first: another may leave the device unusable."""
    if only and setting.is_small:
        yield figures([], left_out="a processor compiles a network of this size for minutes")
        return
    device = bind(setting.kind, 0)
    side = setting.sized(SIDE, SMALL_SIDE)
    format = MARKED_FORMAT if MARKED_FORMAT in device.formats else device.formats[0]
    graph = resnet50((3, side, side), CLASSES)
    device.declare(format)
    limits = _limits(device, format)
    seconds = setting.sized(ROUND_SECONDS, SMALL_ROUND_SECONDS)
    reasons = {only: ""} if only else unused(device, setting)
    others = [name for name, reason in reasons.items() if not reason]
    for names, rounds in (([], 1), (others, setting.sized(ROUNDS, SMALL_ROUNDS))):
        prepared = fitting(device, graph, format, setting.sized(BATCH, SMALL_BATCH), names)
        prepared.unusable.update((name, reason) for name, reason in reasons.items() if reason)
        meter = Meter(device)
        for rates in in_turn(prepared, seconds, rounds, meter):
            yield _found(setting, prepared, rates, meter, limits)


def _found(
    setting: Setting, prepared: Prepared, rates: Mapping[str, list[float]], meter: Meter, limits: Limits
) -> Figures:
    """The figures of the rounds that were made so far."""
    passes = prepared.eager.passes
    device, format, graph = passes.device, passes.format, passes.network.graph
    medians = {name: median(each) for name, each in rates.items()}
    rows = _of_engines(prepared, medians, meter, graph, limits)
    rows += [row(name, f"not used: {reason}") for name, reason in prepared.unusable.items()]
    is_judged = not setting.is_small and format == MARKED_FORMAT
    slow = [] if setting.is_small else slower_than_eager(medians)
    for more_rows, more_slow in (gain_of_fusing(medians, is_judged), beside(medians, device.name, is_judged)):
        rows += more_rows
        slow += more_slow
    faults = [
        f"{name}: {reason}" for name, reason in prepared.unusable.items() if not KINDS[name].why_not(device)
    ]
    side = prepared.images.shape[-1]
    smaller = f"{side}² in place of {SIDE}², {len(prepared.images)} images a step"
    return figures(
        rows,
        faults=faults,
        slow=slow,
        notes=[NOTE],
        smaller=smaller if setting.is_small else "",
        examples_per_second={name: sorted(each) for name, each in rates.items()},
        operations_per_image=graph.cost.train.price(TENSOR_OPS),
        limits={name: getattr(limits, name) for name in ("ops_per_second", "bytes_per_second")},
    )


def _limits(device: Device, format: str) -> Limits:
    """What the device reaches right now, in products and in copies of its memory."""
    products = max(measure_products(device, format, SECONDS), key=lambda product: product.rate.fastest)
    limits = Limits(device.name, format, products.rate.fastest, measure_copy(device, SECONDS).fastest)
    device.clean()
    return limits


def _of_engines(
    prepared: Prepared, medians: Mapping[str, float], meter: Meter, graph: Graph, limits: Limits
) -> list[Row]:
    """Each engine's rate beside what the device can do."""
    device, format = prepared.eager.passes.device, prepared.eager.passes.format
    at_most = 1 / example_seconds(graph, limits, len(prepared.images))
    peak = peak_ops_per_second(device.name, format, device.memory_bytes)
    rows = [row("images in a step", len(prepared.images)), row("format", format)]
    for name, rate in medians.items():
        use, ours = meter.use(name), rate * graph.cost.train.price(TENSOR_OPS)
        rows.append(row(f"{name}: rate", rate, "images/s", at_most, "roofline, measured", use=use))
        rows.append(row(f"{name}: tensor OPS", ours, "OPS", limits.ops_per_second, "ceiling, measured"))
        if peak is not None:
            rows.append(row(f"{name}: MFU", ours, "OPS", peak, "listed peak"))
        rows.append(row(f"{name}: prepared in", prepared.seconds[name], "s"))
    return rows


def slower_than_eager(medians: Mapping[str, float]) -> list[str]:
    eager = medians[Engine.name]
    return [
        f"{name} steps reach {rate / eager:.2f} of the rate of eager ones"
        for name, rate in medians.items()
        if rate < SLOWER * eager
    ]


def gain_of_fusing(medians: Mapping[str, float], is_judged: bool) -> tuple[list[Row], list[str]]:
    """The fastest fused step, captured or not, beside the eager one, and whether it is slow; nothing where no
    fused step was timed. `is_judged`: whether the goal holds for this device and format."""
    fused = [rate for name, rate in medians.items() if issubclass(KINDS[name], Fused | FusedGraphed)]
    if not fused:
        return [], []
    gain = max(fused) / medians[Engine.name]
    rows = [row("fused / eager", gain, "", FUSED_GAIN, "goal, at least", compared=is_judged)]
    if not is_judged or gain >= FUSED_GAIN:
        return rows, []
    return rows, [f"fused steps reach {gain:.2f} times the rate of eager ones; goal: {FUSED_GAIN}"]


def beside(medians: Mapping[str, float], device: str, is_judged: bool) -> tuple[list[Row], list[str]]:
    """The rate of the best engine beside those of others, on the same device or, if there are none, on an
    H200; and what is slow. Beside what PyTorch reaches by itself stands the eager step, because a fast fused
    one would hide that it is slow. `is_judged`: whether the marks are of this format and size."""
    best = max(medians, key=lambda name: medians[name])
    own = device if any(mark.device == device for mark in MARKS) else H200
    rows, slow = list[Row](), list[str]()
    for mark in (mark for mark in MARKS if mark.device == own):
        published, same = mark.who.startswith(PUBLISHED_BY), is_judged and own == device
        name = Engine.name if published else best
        goal = (mark.examples_per_second, mark.who)
        rows.append(row(f"{name} beside", medians[name], "images/s", *goal, compared=same))
        share = medians[name] / mark.examples_per_second
        if published and same and share < 1:
            slow.append(f"{name} reaches {share:.2f} of what {mark.who} published")
    return rows, slow


def fitting(device: Device, graph: Graph, format: str, size: int, names: Sequence[str]) -> Prepared:
    """Prepared engines; the batch is halved until all of them have room in memory. Their reasons begin with
    the type of the error, which is this one for every lack of memory, whichever library reports it."""
    while size > 2:
        try:
            prepared = prepare(device, graph, format, size, names)
            if not any("OutOfMemoryError" in reason for reason in prepared.unusable.values()):
                return prepared
            for engine in prepared.engines.values():
                engine.release()
            del prepared  # with its memory, before the next are made
        except torch.OutOfMemoryError:
            pass  # of the eager engine: the same remedy
        size //= 2
        device.clean()
    return prepare(device, graph, format, size, names)


def prepare(device: Device, graph: Graph, format: str, size: int, names: Sequence[str]) -> Prepared:
    """The eager engine and these on a batch of this size, and why some are not used."""
    scaler = torch.amp.GradScaler(device.kind, enabled=format == "fp16")
    eager = Engine(Passes(place_network(graph, device), device, format, scaler, objective_of(graph)))
    images, labels = batch(graph, device, size)
    with memory_errors():
        eager.step(images, labels)
    engines, seconds, unusable = {eager.name: eager}, {eager.name: 0.0}, {}
    for name in names:
        began = perf_counter()
        reason = KINDS[name].why_not(device)
        if not reason:
            engine, reason = prepare_and_check(KINDS[name], eager, images, labels, Solo())
        if reason:
            unusable[name] = reason
        else:
            engines[name], seconds[name] = engine, perf_counter() - began
    return Prepared(eager, engines, seconds, unusable, images, labels)


def in_turn(
    prepared: Prepared, seconds: float, rounds: int, meter: Meter
) -> Iterator[dict[str, list[float]]]:
    """Images per second of each engine in the rounds of `seconds` seconds so far, after each round: forward,
    backward and optimizer, synchronised at both ends of a round."""
    passes = prepared.eager.passes
    device, parameters = passes.device, list(passes.network.parameters())
    optimizer = torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, fused=device.kind in FUSED)

    def once(engine: Engine, steps: int) -> float:
        device.synchronise()
        began = perf_counter()
        for _ in range(steps):
            engine.step(prepared.images, prepared.labels)
            passes.scaler.step(optimizer)
            passes.scaler.update()
        device.synchronise()
        return perf_counter() - began

    steps = {}
    for name, engine in prepared.engines.items():
        once(engine, 1)
        steps[name] = max(1, round(seconds / once(engine, 1)))
    rates: dict[str, list[float]] = {name: [] for name in prepared.engines}
    for _ in range(rounds):
        for name, engine in prepared.engines.items():
            images = steps[name] * len(prepared.images)
            with meter.during(name):
                rates[name].append(images / once(engine, steps[name]))
        yield rates
