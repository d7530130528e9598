"""Sensors of Ascend devices, and their PCI addresses, through DCMI: the library libdcmi.so, which is part of
the driver."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from aiperf.telemetry.sensor import Reading

# The library's name, for the loader, and the paths where drivers install it without always registering them
# with the loader.
LIBRARIES = ("libdcmi.so", "/usr/local/dcmi/libdcmi.so", "/usr/local/Ascend/driver/lib64/driver/libdcmi.so")
AI_CORE = 2  # kind of utilisation; DCMI API reference


class _Hbm(ctypes.Structure):
    """struct dcmi_hbm_info; sizes are in MiB."""

    _fields_ = (
        ("memory_size", ctypes.c_ulonglong),
        ("freq", ctypes.c_uint),
        ("memory_usage", ctypes.c_ulonglong),
        ("temp", ctypes.c_int),
        ("bandwith_util_rate", ctypes.c_uint),
    )


class _AiCore(ctypes.Structure):
    """struct dcmi_aicore_info; clock rates are in MHz."""

    _fields_ = (("freq", ctypes.c_uint), ("cur_freq", ctypes.c_uint))


class _PciInfo(ctypes.Structure):
    """struct dcmi_pcie_info_all."""

    _fields_ = (
        ("venderid", ctypes.c_uint),
        ("subvenderid", ctypes.c_uint),
        ("deviceid", ctypes.c_uint),
        ("subdeviceid", ctypes.c_uint),
        ("domain", ctypes.c_int),
        ("bdf_busid", ctypes.c_uint),
        ("bdf_deviceid", ctypes.c_uint),
        ("bdf_funcid", ctypes.c_uint),
        ("reserve", ctypes.c_ubyte * 32),
    )


def open_device(identity: str) -> Callable[[], Reading]:
    """A function that reads the device once. `identity` is npu-N, with the device's number on its host.
    Raises OSError without the library, and LookupError without the device."""
    dcmi, board, device = _found(identity)
    return lambda: dict(_read(dcmi, board, device))


def pci_address(identity: str) -> str:
    """Address of the device on the PCI bus of its host, such as 0000:c1:00.0; empty if DCMI is not there or
    does not know it."""
    place = _PciInfo()
    try:
        dcmi, board, device = _found(identity)
        code = dcmi.dcmi_get_device_pcie_info_v2(board, device, ctypes.byref(place))
    except (OSError, LookupError, AttributeError):  # an older library lacks functions
        return ""
    if code:
        return ""
    return f"{place.domain:04x}:{place.bdf_busid:02x}:{place.bdf_deviceid:02x}.{place.bdf_funcid:x}"


def _found(identity: str) -> tuple[Any, int, int]:
    """The library, and the device's board and number on it. Raises as `open_device` does."""
    dcmi = _library()
    if code := dcmi.dcmi_init():
        raise LookupError(f"dcmi_init answers {code}")
    number = int(identity.removeprefix("npu-"))
    place = ctypes.c_int(), ctypes.c_int()
    found = dcmi.dcmi_get_card_id_device_id_from_logicid
    if code := found(ctypes.byref(place[0]), ctypes.byref(place[1]), ctypes.c_uint(number)):
        raise LookupError(f"DCMI knows no device {number}: it answers {code}")
    return dcmi, place[0].value, place[1].value


def _library() -> Any:
    """The loaded library. If it is nowhere, raises the OSError of the first place."""
    first: OSError | None = None
    for place in LIBRARIES:
        try:
            return ctypes.CDLL(place)
        except OSError as error:
            first = first or error
    assert first is not None
    raise first


def _read(dcmi: Any, board: int, device: int) -> Iterator[tuple[str, Any]]:
    """The values that this device has. Raises LookupError if it has none."""
    power, temperature, share = ctypes.c_int(), ctypes.c_int(), ctypes.c_uint()
    memory, core = _Hbm(), _AiCore()

    def asked(function: str, into: Any, *more: int) -> bool:
        """Reads a value; returns False if the device does not have it, or an older library lacks the
        function."""
        call = getattr(dcmi, function, None)
        return call is not None and int(call(board, device, *more, ctypes.byref(into))) == 0

    values: Mapping[str, tuple[bool, Callable[[], float]]] = {
        "power_watts": (asked("dcmi_get_device_power_info", power), lambda: power.value / 10),
        "temperature_celsius": (
            asked("dcmi_get_device_temperature", temperature),
            lambda: float(temperature.value),
        ),
        "utilisation": (
            asked("dcmi_get_device_utilization_rate", share, AI_CORE),
            lambda: share.value / 100,
        ),
        "memory_bytes": (
            asked("dcmi_get_device_hbm_info", memory),
            lambda: float(memory.memory_usage) * (1 << 20),
        ),
        "clock_hertz": (asked("dcmi_get_device_aicore_info", core), lambda: core.cur_freq * 1e6),
    }
    if not any(known for known, _ in values.values()):
        raise LookupError(f"DCMI tells nothing of device {device} on board {board}")
    for name, (known, value) in values.items():
        yield name, value() if known else None
