"""The devices of ranks. A kind is chosen by its name; everything else is behind the interface `Device`."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch

from aiperf.device.cpu import Cpu
from aiperf.device.cuda import Cuda
from aiperf.device.device import Device
from aiperf.device.npu import Npu
from aiperf.device.xpu import Xpu
from aiperf.hardware.unseen import refuse_unseen

__all__ = ["KINDS", "Device", "bind", "chosen_kind", "count_devices", "count_visible", "first_kind"]

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


def chosen_kind(kind: str) -> str:
    """The kind itself, or for `auto` the first of KINDS of which there is a device.

    Raises UnseenDevices if that would be the CPU of a host whose driver lists accelerators: such a CPU is
    measured only on request, because otherwise a run would measure it unnoticed.
    """
    if kind != "auto":
        return kind
    found = first_kind()
    if found == Cpu.kind:
        refuse_unseen(torch.__version__, os.environ)
    return found


def bind(kind: str, index: int, ranks_on_host: int = 1) -> Device:
    """Binds a device to this process, of the kind that `chosen_kind` returns.

    Raises WorldError if there is no device of that kind and index.
    """
    return KINDS[chosen_kind(kind)].bind(index, ranks_on_host)
