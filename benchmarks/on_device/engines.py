"""Conformance of the engines: each makes the step that the eager one makes, on this device."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import FileStore
from torch.nn.functional import dropout
from torch.nn.parallel import DistributedDataParallel

from aiperf.device import Device, bind
from aiperf.engines.agreement import difference, prepare_and_check
from aiperf.engines.engine import Engine, Passes
from aiperf.engines.objective import objective_of
from aiperf.engines.registry import KINDS
from aiperf.measuring.training_step import batch, place_network
from aiperf.parallel.ddp import OWN_STATISTICS
from aiperf.parallel.parallel import Solo
from benchmarks.on_device.parts import Setting
from benchmarks.on_device.rows import Figures, Row, figures, row
from nas.graph import Graph
from nas.seeds import residual, resnet18, resnet50

log = logging.getLogger(__name__)

DROPOUT = 0.2
LOSS_SCALE = 2.0**13
NOTE = (
    "same: the loss and every gradient are those of the eager step, within the bounds of "
    "aiperf/engines/agreement.py; the seconds are those to prepare and compare it"
)


@dataclass(frozen=True)
class Case:
    """One network in one format."""

    name: str
    graph: Graph
    format: str
    images: int
    dropout: float = 0.0


def measure(setting: Setting, group: str = "") -> Figures:
    """An engine that can be used and makes another step, or none, is a fault."""
    device = bind(setting.kind, 0)
    rows, faults = list[Row](), list[str]()
    engines = [name for name in KINDS if name != Engine.name]
    unusable = {name: reason for name in engines if (reason := KINDS[name].why_not(device))}
    usable = [name for name in engines if name not in unusable]
    rows += [row(name, f"cannot be used: {reason}") for name, reason in unusable.items()]
    if group:
        for name in usable:
            _add(rows, faults, name, *_in_ddp(device, name))
        return figures(rows, faults=faults, notes=[NOTE])
    for case in _cases(device, setting):
        for name in usable:
            _add(rows, faults, f"{name}: {case.name}, {case.format}", *_compared(device, case, name))
    smaller = "ResNet-18 at 32² in place of ResNet-50 at 224²" if setting.is_small else ""
    return figures(rows, faults=faults, notes=[NOTE], smaller=smaller)


def _cases(device: Device, setting: Setting) -> Iterator[Case]:
    """The digits' seed in every format, and a large network in the first one."""
    for format in device.formats:
        yield Case("digits' seed, dropout", residual(), format, 50, DROPOUT)
    first = device.formats[0]
    if setting.is_small:
        yield Case("ResNet-18 at 32²", resnet18((3, 32, 32), 10), first, 8)
    else:
        yield Case("ResNet-50 at 224²", resnet50(), first, 32)


def _add(rows: list[Row], faults: list[str], what: str, reason: str, seconds: float) -> None:
    """A row for a comparison, and a fault if the step was another."""
    rows.append(row(what, reason or f"same, {seconds:.1f} s"))
    if reason:
        faults.append(f"{what}: {reason}")


def _compared(device: Device, case: Case, name: str) -> tuple[str, float]:
    """Why it is another step, empty where it is not; seconds to prepare and compare it."""
    eager, (images, labels) = _eager(device, case)
    began = perf_counter()
    engine, reason = prepare_and_check(KINDS[name], eager, images, labels, Solo())
    device.synchronise()
    seconds = perf_counter() - began
    engine.release()
    return reason, seconds


def _eager(device: Device, case: Case) -> tuple[Engine, tuple[Tensor, Tensor]]:
    """The eager engine of a case, and its batch."""
    device.declare(case.format)
    device.clean()
    network = place_network(case.graph, device)
    if case.dropout:
        last = [module for module in network.modules() if isinstance(module, torch.nn.Linear)][-1]
        last.register_forward_pre_hook(
            lambda module, inputs: (dropout(inputs[0], case.dropout, module.training),)
        )
    enabled = case.format == "fp16"
    scaler = torch.amp.GradScaler(device.kind, init_scale=LOSS_SCALE, enabled=enabled)
    passes = Passes(network, device, case.format, scaler, objective_of(network.graph, 0.1))
    return Engine(passes), batch(case.graph, device, case.images)


def _in_ddp(device: Device, name: str) -> tuple[str, float]:
    """The same in DDP, which averages gradients over a group, here of one rank."""
    with tempfile.TemporaryDirectory() as folder:
        store = FileStore(str(Path(folder) / "store"), 1)
        where = device.torch if device.kind == "cuda" else None
        dist.init_process_group(device.backend, store=store, rank=0, world_size=1, device_id=where)
        began = perf_counter()
        try:
            return _wrapped(device, name)
        except Exception as error:  # a compiler or a captured library raises what it likes: it is the reason
            log.exception("no %s steps", name)
            return f"{type(error).__name__}: {error}".splitlines()[0], perf_counter() - began
        finally:
            dist.destroy_process_group()


def _wrapped(device: Device, name: str) -> tuple[str, float]:
    """Compared with the bare eager step where it is wrapped from the first step on; where it begins later,
    after as many wrapped eager ones, as a trial of several ranks does."""
    case = Case("digits' seed", residual(), device.formats[0], 50)
    eager, (images, labels) = _eager(device, case)
    engine = KINDS[name](eager.passes)
    began = perf_counter()
    if first := KINDS[name].begins(wrapped=True):
        eager.module = _joined(eager.bare, device)
        for _ in range(first):
            eager.step(images, labels)
        engine.module = eager.module
    else:
        engine.module = _joined(engine.bare, device)
    reason = difference(eager, engine, images, labels)
    device.synchronise()
    seconds = perf_counter() - began
    engine.release()
    return reason, seconds


def _joined(network: torch.nn.Module, device: Device) -> torch.nn.Module:
    """The network in DDP, as aiperf/parallel/ddp.py wraps it."""
    devices = None if device.kind == "cpu" else [device.index]
    return DistributedDataParallel(
        network, device_ids=devices, gradient_as_bucket_view=True, **OWN_STATISTICS
    )
