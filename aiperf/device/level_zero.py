"""Addresses of Intel's GPUs, through Level Zero: the library of Intel's driver that torch.xpu uses, too."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any
from uuid import UUID

LIBRARY = "libze_loader.so.1"
GPUS = 1
"""ZE_INIT_FLAG_GPU_ONLY."""


class _DeviceProperties(ctypes.Structure):
    """ze_device_properties_t, up to the UUID and in its whole length; ze_api.h of Level Zero."""

    _fields_ = (
        ("stype", ctypes.c_uint),
        ("next", ctypes.c_void_p),
        ("numbers", ctypes.c_uint * 20),
        ("uuid", ctypes.c_ubyte * 16),
        ("name", ctypes.c_char * 256),
    )


class _PciProperties(ctypes.Structure):
    """ze_pci_ext_properties_t."""

    _fields_ = (
        ("stype", ctypes.c_uint),
        ("next", ctypes.c_void_p),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("function", ctypes.c_uint),
        ("speed", ctypes.c_longlong * 2),
    )


DEVICE_PROPERTIES, PCI_PROPERTIES = 0x3, 0x10008
"""ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES and ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES."""


def pci_address(uuid: str) -> str:
    """Address of the device with this UUID on the PCI bus of its host, such as 0000:c1:00.0; empty if Level
    Zero is not there or does not know it."""
    try:
        wanted, library = UUID(uuid).bytes, ctypes.CDLL(LIBRARY)
        found = (device for device in _devices(library) if _uuid(library, device) == wanted)
        return next((_address(library, device) for device in found), "")
    except (ValueError, OSError, AttributeError):  # an older library lacks functions
        return ""


def _devices(library: Any) -> Iterator[ctypes.c_void_p]:
    """Handles of the GPUs that this process sees, as torch sees them: both obey the same variables."""
    if library.zeInit(GPUS) == 0:
        for driver in _handles(library.zeDriverGet):
            yield from _handles(library.zeDeviceGet, driver)


def _handles(function: Any, *of: ctypes.c_void_p) -> list[ctypes.c_void_p]:
    """What a function lists, which is asked for the length first; nothing if it fails."""
    count = ctypes.c_uint()
    if function(*of, ctypes.byref(count), None) != 0:
        return []
    handles = (ctypes.c_void_p * count.value)()
    if function(*of, ctypes.byref(count), handles) != 0:
        return []
    return [ctypes.c_void_p(handle) for handle in handles[: count.value]]


def _uuid(library: Any, device: ctypes.c_void_p) -> bytes:
    """The UUID of a device; empty if it has none."""
    found = _DeviceProperties(stype=DEVICE_PROPERTIES)
    return bytes(found.uuid) if library.zeDeviceGetProperties(device, ctypes.byref(found)) == 0 else b""


def _address(library: Any, device: ctypes.c_void_p) -> str:
    """The address of a device; empty if the driver does not say it."""
    found = _PciProperties(stype=PCI_PROPERTIES)
    if library.zeDevicePciGetPropertiesExt(device, ctypes.byref(found)) != 0:
        return ""
    return f"{found.domain:04x}:{found.bus:02x}:{found.device:02x}.{found.function:x}"
