"""The model of a training step's memory against what the step really takes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from time import sleep
from typing import Any

import psutil
import torch

from aiperf.config import TrainingConfig, load_preset
from aiperf.device import Device, bind
from aiperf.engines.engine import Engine, Passes
from aiperf.engines.objective import objective_of
from aiperf.engines.registry import KINDS
from aiperf.measuring.training_step import batch, place_network
from aiperf.proposing.hyper import SHARE
from aiperf.proposing.memory_model import GRAPHED, graph_bytes, step_parts
from benchmarks.on_device.engines import usable
from benchmarks.on_device.parts import COMPILED, Setting
from benchmarks.on_device.rows import Figures, Row, figures, row
from nas.graph import Graph
from nas.seeds import residual, resnet18, resnet50

PERIOD_SECONDS = 0.002


def measure(setting: Setting) -> Iterator[Figures]:
    """More than the model says, by more than the share of the memory that is left free, is a fault on an
    accelerator: a batch that was let through would not fit."""
    device = bind(setting.kind, 0)
    format = device.formats[0]
    device.declare(format)
    training = replace(load_preset("digits").training, format=format)  # with SGD, as the steps below
    rows, faults = list[Row](), list[str]()
    rough = "; the process's own memory, read every 2 ms: rough" if setting.is_small else ""
    found = figures(
        rows,
        faults=faults,
        notes=["Weights, gradients, momentum and activations at the highest; images and caches are in it."],
        smaller=f"ResNet-18 at 64² in place of ResNet-50 at 224²{rough}" if setting.is_small else "",
        format=format,
    )
    for what, graph, images, names in _cases(device, setting):
        for name in names:
            expected = modelled(graph, training, images, device.kind, name)
            _taken(device, graph, format, 2, name)  # what libraries take at their first use, and keep
            device.clean()
            taken = _taken(device, graph, format, images, name)
            rows.append(row(f"{what}, {images} images, {name}", taken, "GiB", expected, "memory model"))
            if not setting.is_small and taken - expected > (1 - SHARE) * device.memory_bytes:
                faults.append(f"{what}, {name}: {taken / expected:.2f} times what the model says")
            yield found


def modelled(graph: Graph, training: TrainingConfig, images: int, kind: str, engine: str) -> int:
    """Bytes that the memory model says for a step by this engine."""
    eager = sum(step_parts(graph, training, images, 1, kind).values())
    return eager + (graph_bytes(graph, training, images, 1) if engine in GRAPHED else 0)


def _cases(device: Device, setting: Setting) -> list[tuple[str, Graph, int, tuple[str, ...]]]:
    """Networks with a number of images and the engines that are watched."""
    if setting.is_small:  # eager alone: what a compiler takes of the same process would be in it
        return [
            ("digits' seed", residual(), 400, (Engine.name,)),
            ("ResNet-18 at 64²", resnet18((3, 64, 64)), 64, (Engine.name,)),
        ]
    names = (Engine.name, *usable(device, setting))
    compiled = () if KINDS[COMPILED].why_not(device) else (COMPILED,)
    return [
        ("digits' seed", residual(), 1000, (*names, *compiled)),
        ("ResNet-50", resnet50(), 64, names),
        ("ResNet-50", resnet50(), 256, (Engine.name,)),
    ]


def _taken(device: Device, graph: Graph, format: str, images: int, name: str) -> int:
    """Bytes at the highest in two steps with their optimizer, beside what was there before."""
    highest = _highest(device)
    scaler = torch.amp.GradScaler(device.kind, enabled=format == "fp16")
    eager = Engine(Passes(place_network(graph, device), device, format, scaler, objective_of(graph)))
    pixels, labels = batch(graph, device, images)
    engine = KINDS[name](eager.passes)
    optimizer = torch.optim.SGD(eager.passes.network.parameters(), lr=1e-3, momentum=0.9)
    engine.prepare(pixels, labels)
    for _ in range(2):
        engine.step(pixels, labels)
        optimizer.step()
    device.synchronise()
    found = highest()
    engine.release()
    return found


def _highest(device: Device) -> Callable[[], int]:
    """Begins to watch; called, it gives the bytes at the highest beside those of now."""
    if device.kind == "cpu":
        return _Watch().end
    module: Any = getattr(torch, device.kind)
    before = module.memory_allocated(device.index)
    module.reset_peak_memory_stats(device.index)
    return lambda: int(module.max_memory_allocated(device.index)) - int(before)


class _Watch:
    """Reads this process's resident memory again and again."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._before = self._highest = self._process.memory_info().rss
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._over.is_set():
            self._look()
            sleep(PERIOD_SECONDS)

    def _look(self) -> None:
        self._highest = max(self._highest, self._process.memory_info().rss)

    def end(self) -> int:
        """Bytes at the highest, beside those at the beginning."""
        self._over.set()
        self._thread.join()
        self._look()  # the last time may be long ago, for a process that does not wait
        return int(self._highest - self._before)
