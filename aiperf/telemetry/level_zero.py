"""Level Zero, the library of Intel's driver that torch.xpu uses, too: what it tells of devices, and their
addresses. Structures and constants are those of ze_api.h and zes_api.h; functions for sensors begin with
zes."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar
from uuid import UUID

LIBRARY = "libze_loader.so.1"
GPUS = 1
"""ZE_INIT_FLAG_GPU_ONLY."""
DEVICE_PROPERTIES, PCI_PROPERTIES = 0x3, 0x10008
"""ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES and …_PCI_EXT_PROPERTIES."""
ENGINES, CLOCKS, MEMORIES, POWERS, TEMPERATURES = 0x5, 0x9, 0xB, 0xD, 0x14
"""ZES_STRUCTURE_TYPE_…_PROPERTIES of ENGINE, FREQ, MEM, POWER and TEMP."""
CLOCK_STATE, MEMORY_STATE, POWER_DOMAIN = 0x1B, 0x1E, 0x28
"""ZES_STRUCTURE_TYPE_FREQ_STATE, …_MEM_STATE and …_POWER_EXT_PROPERTIES."""


class Uuid(ctypes.Structure):
    """zes_uuid_t."""

    _fields_ = (("id", ctypes.c_ubyte * 16),)


class Counter(ctypes.Structure):
    """zes_power_energy_counter_t, whose value is in microjoules, and zes_engine_stats_t, whose value is the
    time at work. Times are in microseconds."""

    _fields_ = (("value", ctypes.c_ulonglong), ("time", ctypes.c_ulonglong))


class Typed(ctypes.Structure):
    """How all other structures begin."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = (("stype", ctypes.c_uint), ("next", ctypes.c_void_p))


class _DeviceProperties(Typed):
    """ze_device_properties_t, up to the UUID and in its whole length."""

    _fields_ = (
        ("numbers", ctypes.c_uint * 20),
        ("uuid", ctypes.c_ubyte * 16),
        ("name", ctypes.c_char * 256),
    )


class _PciProperties(Typed):
    """ze_pci_ext_properties_t."""

    _fields_ = (
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("function", ctypes.c_uint),
        ("speed", ctypes.c_longlong * 2),
    )


class Component(Typed):
    """zes_engine_properties_t, and how those of clocks, memories and temperatures begin, with room for the
    rest of each."""

    _fields_ = (
        ("type", ctypes.c_uint),
        ("is_of_stack", ctypes.c_ubyte),
        ("stack", ctypes.c_uint),
        ("rest", ctypes.c_ubyte * 64),
    )


class PowerDomain(Typed):
    """zes_power_ext_properties_t."""

    _fields_ = (("type", ctypes.c_uint), ("limit", ctypes.c_void_p))


class Power(Typed):
    """zes_power_properties_t, with room for its rest; its type is in the structure that `next` points to."""

    _fields_ = (
        ("is_of_stack", ctypes.c_ubyte),
        ("stack", ctypes.c_uint),
        ("rest", ctypes.c_ubyte * 64),
    )


class ClockState(Typed):
    """zes_freq_state_t; MHz, negative if unknown."""

    _fields_ = (
        ("others", ctypes.c_double * 4),
        ("actual", ctypes.c_double),
        ("reasons", ctypes.c_uint),
    )


class MemoryState(Typed):
    """zes_mem_state_t; bytes."""

    _fields_ = (
        ("health", ctypes.c_uint),
        ("free", ctypes.c_ulonglong),
        ("size", ctypes.c_ulonglong),
    )


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
        for driver in handles(library.zeDriverGet):
            yield from handles(library.zeDeviceGet, driver)


def handles(function: Any, *of: ctypes.c_void_p) -> list[ctypes.c_void_p]:
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
    found = _DeviceProperties(DEVICE_PROPERTIES)
    return bytes(found.uuid) if library.zeDeviceGetProperties(device, ctypes.byref(found)) == 0 else b""


def _address(library: Any, device: ctypes.c_void_p) -> str:
    """The address of a device; empty if the driver does not say it."""
    found = _PciProperties(PCI_PROPERTIES)
    if library.zeDevicePciGetPropertiesExt(device, ctypes.byref(found)) != 0:
        return ""
    return f"{found.domain:04x}:{found.bus:02x}:{found.device:02x}.{found.function:x}"
