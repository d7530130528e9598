"""The devices of ranks: a kind is chosen by its name, and everything else is behind `Device`."""

from __future__ import annotations

from collections.abc import Mapping

from aiperf.device.cpu import Cpu
from aiperf.device.cuda import Cuda
from aiperf.device.device import Device
from aiperf.device.npu import Npu
from aiperf.device.xpu import Xpu

__all__ = ["KINDS", "Device", "bind", "count_devices", "first_kind"]

KINDS: Mapping[str, type[Device]] = {"cuda": Cuda, "npu": Npu, "xpu": Xpu, "cpu": Cpu}
"""In order of preference."""


def count_devices(kind: str) -> int:
    """Visible devices of a kind; a host is one CPU device."""
    return KINDS[kind].count()


def first_kind() -> str:
    """The first of KINDS that is there."""
    return next(kind for kind in KINDS if count_devices(kind))


def bind(kind: str, index: int, ranks_on_host: int = 1) -> Device:
    """Takes a device for this process; `auto` is the first kind of KINDS that is there.

    Raises WorldError when there is none of that kind and index.
    """
    return KINDS[first_kind() if kind == "auto" else kind].bind(index, ranks_on_host)
