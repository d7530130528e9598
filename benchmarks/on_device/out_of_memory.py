"""A device without enough memory: in an eager step, in a capture, in a library's workspace. A run must know
it as what it is, and go on with a smaller batch. After a capture that becomes invalid it must go on, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from aiperf.device import Device, bind
from aiperf.device.device import SIXTEEN_BIT, is_out_of_memory
from aiperf.engines.agreement import prepare_and_check
from aiperf.engines.engine import Engine, Passes
from aiperf.engines.graphed import Graphed
from aiperf.engines.objective import objective_of
from aiperf.measuring.training_step import batch, place_network
from aiperf.parallel.parallel import Solo
from benchmarks.on_device.parts import Setting
from benchmarks.on_device.rows import Figures, Row, figures, row
from nas.graph import Graph
from nas.seeds import residual, resnet50

MIB = 1 << 20
BATCH, SMALLER = 128, 4
LEFT = 2 << 30
"""Bytes that are left for the large eager step, which needs many times as many."""
MORE_THAN_THERE_IS = 1 << 50
"""Bytes that no device has; torch refuses more than 2^60 with another error."""
WORKSPACES = (0, 8, 64, 512)
"""MiB that are left for the workspace of a convolution."""
CONVOLVED = (64, 256, 56)
"""Images, channels and side of a convolution."""
ADDRESSES = 1 << 40
"""Images of a batch that is only a view: its activations need more than the addresses of a process."""
LONGEST = 160
"""Characters of an error that are shown."""


@dataclass(frozen=True)
class Raised:
    """What a work raised, without the exception, whose frames would keep its tensors alive."""

    line: str
    is_memory: bool
    """Whether the program knows it as a lack of memory."""


def measure(setting: Setting) -> Iterator[Figures]:
    """An error that is not known as a lack of memory is a fault, and what fails after it or after a capture
    that was invalidated."""
    device = bind(setting.kind, 0)
    device.declare(device.formats[0])
    tries: dict[str, Callable[[Device], tuple[str, str]]] = {"eager step": _eager}
    if device.kind != "cpu":
        tries |= {"capture": partial(_captured, Greedy), "convolution": _convolved}
    tries["capture that waits"] = partial(_captured, Waiting)  # the last, because it may leave most behind
    rows, faults = list[Row](), list[str]()
    notes = ["Found: how the lack of memory, or the wait, was reported. Steps are made after each."]
    found = figures(rows, faults=faults, notes=notes)
    for name, tried in tries.items():
        device.clean()  # before each: after the last one, what fails is a fault of it
        said, fault = tried(device)
        rows.append(row(name, said))
        faults += [f"{name}: {fault}"] if fault else []
        yield found
    if device.kind == "cpu":
        rows.append(row("capture, convolution", "not tried: a processor has no memory of its own to fill"))
        yield found


def _eager(device: Device) -> tuple[str, str]:
    """A step far larger than what is left: what it raised, and what is wrong with that."""
    on_cpu = device.kind == "cpu"
    engine = _engine(device, residual() if on_cpu else resnet50())
    few, labels = batch(engine.passes.network.graph, device, SMALLER)
    engine.step(few, labels)  # what libraries take at their first use, and keep
    ballast = [] if on_cpu else _all_but(device, LEFT)
    if on_cpu:
        many = few[:1].expand(ADDRESSES, *few.shape[1:]), labels[:1].expand(ADDRESSES)
    else:
        many = batch(engine.passes.network.graph, device, BATCH)
    raised = _raised(lambda: engine.step(*many))
    device.clean()
    after = _raised(lambda: engine.step(few, labels))
    ballast.clear()
    if raised is None:
        return "it fits", "a step that must not fit was made"
    if not raised.is_memory:
        return raised.line, f"not known as a lack of memory: {raised.line}"
    return raised.line, f"no smaller step after it: {after.line}" if after else ""


class Greedy(Graphed):
    """Captured steps that ask for more memory than any device has, in the capture only."""

    def _alone(self) -> None:
        if torch.cuda.is_current_stream_capturing():
            torch.empty(MORE_THAN_THERE_IS, dtype=torch.uint8, device=self.passes.device.torch)
        super()._alone()


class Waiting(Graphed):
    """Captured steps in which the host waits for the device, which invalidates a capture. Then
    cudaStreamEndCapture fails as well, and torch leaves the rest of its end out: the allocator still takes
    from the graph's pool, and random numbers are still those of a capture (`capture_end` of
    ATen/cuda/CUDAGraph.cpp)."""

    def _alone(self) -> None:
        super()._alone()
        self._loss.item()


def _captured(kind: type[Graphed], device: Device) -> tuple[str, str]:
    """A capture that must fail: the program falls back to eager steps. After it the device must do all that a
    run goes on with."""
    if reason := Graphed.why_not(device):
        return f"not tried: {reason}", ""
    engine = _engine(device, residual())
    examples = batch(engine.passes.network.graph, device, BATCH)
    engine.step(*examples)
    chosen, reason = prepare_and_check(kind, engine, *examples, Solo())
    if not reason:
        return "it was captured", "a capture that must fail was made"
    after: dict[str, Callable[[], object]] = {
        "memory returned": device.clean,
        "random number": lambda: torch.rand(1, device=device.torch).item(),
        "eager step": lambda: chosen.step(*examples).item(),
    }
    faults = [f"no {what} after it: {raised.line}" for what, do in after.items() if (raised := _raised(do))]
    again, failed = prepare_and_check(Graphed, engine, *examples, Solo())
    again.release()
    return reason, "; ".join([*faults, *([f"no capture after it: {failed}"] if failed else [])])


def _convolved(device: Device) -> tuple[str, str]:
    """Convolutions with ever more memory for a workspace, each of a new size, so that kernels are tried
    out."""
    said = list[str]()
    for number, mib in enumerate(WORKSPACES):
        number_images, channels, side = CONVOLVED
        shape = (number_images, channels, side + number, side)
        images = torch.randn(shape, device=device.torch).to(SIXTEEN_BIT[device.formats[0]])
        images = device.arranged(images)
        weight = device.arranged(images[:1, :, :3, :3].repeat(channels, 1, 1, 1))
        ballast = _all_but(device, images.nbytes + mib * MIB)
        raised = _raised(partial(conv2d, images, weight, padding=1))
        ballast.clear()
        device.clean()
        if raised and not raised.is_memory:
            return raised.line, f"with {mib} MiB left, not known as a lack of memory: {raised.line}"
        said.append(raised.line if raised else "it fits")
    return "; ".join(dict.fromkeys(said)), ""


def _engine(device: Device, graph: Graph) -> Engine:
    format = device.formats[0]
    scaler = torch.amp.GradScaler(device.kind, enabled=False)
    return Engine(Passes(place_network(graph, device), device, format, scaler, objective_of(graph)))


def _all_but(device: Device, bytes_left: int) -> list[Tensor]:
    """Tensors that take all but this many bytes of the device's memory, in pieces, because memory may be cut
    up."""
    module: Any = getattr(torch, device.kind)
    device.synchronise()
    device.clean()
    taken, piece = list[Tensor](), 1 << 30
    while piece >= MIB:
        if int(module.mem_get_info(device.index)[0]) - piece < bytes_left:
            piece //= 2
            continue
        try:
            taken.append(torch.empty(piece, dtype=torch.uint8, device=device.torch))
        except torch.OutOfMemoryError:
            piece //= 2
    return taken


def _raised(work: Callable[[], object]) -> Raised | None:
    """What the work raises; None if it is done."""
    try:
        work()
    except Exception as error:  # of a library, which raises what it likes: that is what is looked for
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        return Raised(text[:LONGEST], is_out_of_memory(error))
    return None
