"""Conformance of the engines: each makes the step that the eager one makes, and an optimizer can use it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor
from torch.nn.functional import dropout

from aiperf.config import load_preset
from aiperf.device import Device, bind
from aiperf.engines.agreement import prepare_and_check
from aiperf.engines.engine import Engine, Passes, has_layout_of
from aiperf.engines.objective import objective_of
from aiperf.engines.registry import KINDS
from aiperf.measuring.training_step import batch, place_network
from aiperf.parallel.parallel import Solo
from aiperf.training.optimizers import make_optimizer
from aiperf.wire.trial import HyperParameters
from benchmarks.on_device.parts import COMPILED, Setting, part_of
from benchmarks.on_device.rows import Figures, Row, figures, row
from nas.graph import Graph
from nas.modules import Network
from nas.seeds import residual, resnet18, resnet50

DROPOUT = 0.2
LOSS_SCALE = 2.0**13
STEPS = 4
"""Number of steps with an optimizer: later ones read gradients that the first one has used, and in fp16 some
may overflow, until the scale is small enough."""
MOST_APART = 1.0
"""Largest difference between what an engine and the eager one learnt in the first step, as a share of what
was learnt. Strides that are read wrongly permute the gradient: about 1.4. Rounding takes small batches of
deep networks off by up to a half in bf16."""
NOTE = (
    "same: loss and gradients are those of the eager step, within the bounds of aiperf/engines/agreement.py, "
    "with the strides of their parameters; the program's optimizer then learns the same. The seconds are "
    "those to prepare and compare it"
)


@dataclass(frozen=True)
class Case:
    """One network in one format."""

    name: str
    graph: Graph
    format: str
    images: int
    dropout: float = 0.0


def measure(setting: Setting, name: str) -> Iterator[Figures]:
    """An engine that can be used and makes another step, or none, is a fault. Each has a part of its own,
    because a kernel that reads a wrong address leaves its process without a device."""
    device = bind(setting.kind, 0)
    rows, faults = list[Row](), list[str]()
    smaller = "ResNet-18 at 32² in place of ResNet-50 at 224²" if setting.is_small else ""
    found = figures(rows, faults=faults, notes=[NOTE], smaller=smaller)
    if reason := KINDS[name].why_not(device):
        rows.append(row(name, f"cannot be used: {reason}"))
        yield found
        return
    for case in _cases(device, setting):
        what = f"{name}: {case.name}, {case.format}"
        reason, seconds = _compared(device, case, name)
        rows.append(row(what, reason or f"same, {seconds:.1f} s"))
        faults += [f"{what}: {reason}"] if reason else []
        yield found
        device.synchronise()  # raises here what a failed kernel left, and not in another part


def usable(device: Device, setting: Setting) -> list[str]:
    """Engines beside the eager one that other parts use."""
    return [name for name, reason in unused(device, setting).items() if not reason]


def unused(device: Device, setting: Setting) -> dict[str, str]:
    """Why other parts do not use an engine, by its name; empty if they do. One whose own part was cut off may
    end others too. The compiled one, which takes minutes, is not among them."""
    names = (name for name in KINDS if name not in (Engine.name, COMPILED))
    return {name: KINDS[name].why_not(device) or _cut_off(setting.saved(part_of(name))) for name in names}


def _cut_off(saved: Path) -> str:
    """Whether the part that saved this crashed or was ended; empty if it was not."""
    if not saved.exists() or json.loads(saved.read_text(encoding="utf-8"))["is_whole"]:
        return ""
    return f"the part {saved.stem} was cut off"


def _cases(device: Device, setting: Setting) -> Iterator[Case]:
    """The digits' seed in every format, and a large network in the first one."""
    for format in device.formats:
        yield Case("digits' seed, dropout", residual(), format, 50, DROPOUT)
    first = device.formats[0]
    if setting.is_small:
        yield Case("ResNet-18 at 32²", resnet18((3, 32, 32), 10), first, 8)
    else:
        yield Case("ResNet-50 at 224²", resnet50(), first, 32)


def _compared(device: Device, case: Case, name: str) -> tuple[str, float]:
    """Why it is another step, or learns something else, empty where it is the same; seconds to prepare and
    compare it."""
    eager, (images, labels) = _eager(device, case)
    began = perf_counter()
    engine, reason = prepare_and_check(KINDS[name], eager, images, labels, Solo())
    if not reason:
        device.synchronise()
    seconds = perf_counter() - began
    if not reason:
        other, _ = _eager(device, case)
        reason = _differently(_learnt(other, images, labels), _learnt(engine, images, labels))
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


@dataclass(frozen=True)
class Learnt:
    """What a few steps with the program's optimizer changed."""

    moved: dict[str, Tensor]
    """Difference of each trained tensor from its start, after the first step that did not overflow."""
    otherwise: str = ""
    """A gradient without the strides of its parameter, or what the optimizer raised."""


def _learnt(engine: Engine, images: Tensor, labels: Tensor) -> Learnt:
    """Makes STEPS steps with the optimizer of a trial, which is fused where the device has one: on CUDA it
    refuses gradients whose strides are not those of their parameters (`check_fast_path_restrictions` of
    ATen/native/ForeachUtils.h), on a CPU it computes wrong weights."""
    passes = engine.passes
    before = {name: each.detach().clone() for name, each in _trained(passes.network)}
    hyper = HyperParameters(0.01, len(labels))
    training = load_preset("digits").training.optimizer
    optimizer = make_optimizer(training, passes.network, hyper, passes.device, passes.format)
    torch.manual_seed(0)  # of dropout
    moved = dict[str, Tensor]()
    for _ in range(STEPS):
        scale = passes.scaler.get_scale()
        engine.step(images, labels)
        for name, parameter in _trained(passes.network):
            if parameter.grad is None or not has_layout_of(parameter.grad, parameter):
                return Learnt({}, f"the gradient of {name} has not the strides of its parameter")
        try:
            passes.scaler.step(optimizer)
        except RuntimeError as error:  # as torch does where a fused optimizer cannot use them
            return Learnt({}, f"the optimizer: {error}".splitlines()[0])
        passes.scaler.update()
        if not moved and passes.scaler.get_scale() >= scale:
            moved = {name: each.detach() - before[name] for name, each in _trained(passes.network)}
    return Learnt(moved, "" if moved else "every step overflowed")


def _trained(network: Network) -> list[tuple[str, Tensor]]:
    return [(name, each) for name, each in network.tensors().items() if each.requires_grad]


def _differently(expected: Learnt, found: Learnt) -> str:
    """How an engine's network learnt something else than the eager one's; empty if it did not."""
    if expected.otherwise or found.otherwise:
        return found.otherwise or f"eager: {expected.otherwise}"
    size = _norm(expected.moved)
    apart = _norm({name: each - expected.moved[name] for name, each in found.moved.items()})
    if not isfinite(size) or not size:
        return f"the eager steps moved the weights by {size:.3g}"
    print(f"{apart / size:.3g} of the movement", flush=True)  # into the part's log
    return (
        "" if apart <= MOST_APART * size else f"it learns something else: {apart / size:.2g} of the movement"
    )


def _norm(tensors: dict[str, Tensor]) -> float:
    return float(torch.stack([each.float().norm() for each in tensors.values()]).norm())
