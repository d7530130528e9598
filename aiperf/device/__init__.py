"""The devices of ranks. A kind is chosen by its name; everything else is behind the interface `Device`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

import torch

from aiperf.device.accelerator import Accelerator
from aiperf.device.cpu import Cpu
from aiperf.device.cuda import Cuda
from aiperf.device.device import Device
from aiperf.device.npu import Npu
from aiperf.device.xpu import Xpu
from aiperf.hardware.host_accelerators import refuse_unseen
from aiperf.wire.layout import Place
from nas.frozen import frozen

__all__ = [
    "KINDS",
    "Choice",
    "Device",
    "bind",
    "bind_place",
    "choose",
    "count_devices",
    "count_visible",
    "first_kind",
]

KINDS: Mapping[str, type[Device]] = {"cuda": Cuda, "npu": Npu, "xpu": Xpu, "cpu": Cpu}
"""Classes of devices by kind, in order of preference."""


def count_devices(kind: str) -> int:
    """Number of visible devices of a kind; a host is one CPU device."""
    return KINDS[kind].count()


def count_visible(kind: str) -> int:
    """As `count_devices`, also of the kind `auto`."""
    return count_devices(first_kind() if kind == "auto" else kind)


def first_kind() -> str:
    """The first of KINDS of which there is a device."""
    return next(kind for kind in KINDS if count_devices(kind))


@frozen
class Choice:
    """The kind of device that a process computes on."""

    kind: str
    note: str = ""
    """What the user should know about it; empty if there is nothing."""

    def bind(self, index: int, ranks_on_host: int = 1) -> Device:
        """Binds a device of this kind to this process. Raises WorldError if there is none with that index."""
        return replace(KINDS[self.kind].bind(index, ranks_on_host), note=self.note)


def choose(kind: str) -> Choice:
    """The kind itself, or for `auto` the first of KINDS of which there is a device.

    Raises UnseenDevices if that would be the CPU of a host whose driver lists accelerators, or is loaded and
    fails: such a CPU is measured only on request, because otherwise a run would measure it unnoticed.
    """
    if kind != "auto":
        return Choice(kind)
    found = first_kind()
    if found != Cpu.kind:
        return Choice(found)
    accelerators = [each for each in KINDS.values() if issubclass(each, Accelerator)]
    faults = {each.vendor(): each.fault() for each in accelerators}
    return Choice(found, refuse_unseen(torch.__version__, os.environ, faults))


def bind(kind: str, index: int, ranks_on_host: int = 1) -> Device:
    """Binds a device to this process, of the kind that `choose` returns.

    Raises WorldError if there is no device of that kind and index.
    """
    return choose(kind).bind(index, ranks_on_host)


def bind_place(kind: str, place: Place) -> Device:
    """The device of a rank: by its position, or the only one that the launcher shows it."""
    choice = choose(kind)
    alone = count_devices(choice.kind) == 1
    return choice.bind(0 if alone else place.device_index, place.ranks_on_host)
