"""Addresses and sensors of Intel's GPUs. A driver in C that was made with the headers of Level Zero has been
read in the same ways as the library here; of addresses, behind the loader of Level Zero 1.8."""

# ruff: noqa: N802, N815

from __future__ import annotations

import ctypes
from functools import partialmethod
from typing import Any
from uuid import UUID

import pytest

from aiperf.telemetry import intel, level_zero
from aiperf.telemetry.level_zero import pci_address
from aiperf.telemetry.sensor import plausible
from tests.tables import ComesTo

UNSUPPORTED = 0x78000003
PARTS: dict[str, dict[int, list[tuple[int, int | None, float]]]] = {
    "Power": {1: [(2, None, 1), (1, None, 200), (4, 0, 2), (3, 0, 40), (3, 1, 50)], 3: [(0, None, 300)]},
    "Engine": {1: [(0, None, 0.9), (1, 0, 0.25), (0, 0, 1), (1, 1, 0.75)], 3: []},
    "Frequency": {1: [(1, 0, 3e3), (0, 0, 1600), (0, 1, 1500)], 3: [(0, None, -1)]},
    "Memory": {1: [(0, 0, 3), (0, 1, 4)], 3: [(0, None, 5)]},
    "Temperature": {1: [(0, 0, 90), (1, 0, 60), (1, 1, 61)], 3: [(0, None, 70)]},
}
"""Parts of GPUs by kind, in the order in which they are listed: the type, the stack, and a value."""


@property  # type: ignore[misc]
def MISSING(library: object) -> None:
    """A function that a loader lacks, as ctypes says it."""
    raise AttributeError("undefined symbol")


class LevelZero:
    """libze_loader.so.1, as ze_api.h describes it; a number other than 0 is an error."""

    def zeInit(self, flags: int) -> int:
        return 0 if flags == 1 else 0x78000003

    def zeDriverGet(self, count: Any, handles: Any) -> int:
        return _list((101, 102), count, handles)

    def zeDeviceGet(self, driver: ctypes.c_void_p, count: Any, handles: Any) -> int:
        return _list({101: (1, 2), 102: (3,)}[driver.value or 0], count, handles)

    def zeDeviceGetProperties(self, device: ctypes.c_void_p, found: Any) -> int:
        assert found._obj.stype == 0x3
        found._obj.uuid[:] = UUID(int=device.value or 0).bytes
        return 0

    def zeDevicePciGetPropertiesExt(self, device: ctypes.c_void_p, found: Any) -> int:
        assert found._obj.stype == 0x10008
        found._obj.domain, found._obj.bus = device.value, 0x9A
        return 0


def _list(known: tuple[int, ...], count: Any, handles: Any) -> int:
    count._obj.value = len(known)
    if handles is not None:
        handles[:] = known
    return 0


class Sysman(LevelZero):
    """The same by zes_api.h: GPU 1 of two stacks with UUIDs 10 to 12, and GPU 3 with UUID 30, whose driver
    tells no types of power domains and has no engines."""

    zesDriverGet = LevelZero.zeDriverGet
    asked, seconds = False, 0

    def zesInit(self, flags: int) -> int:
        return 0 if flags == 0 else 0x78000004

    def zesDeviceGet(self, driver: ctypes.c_void_p, count: Any, handles: Any) -> int:
        self.asked = True
        return self.zeDeviceGet(driver, count, handles)

    def zesDriverGetDeviceByUuidExp(
        self, driver: ctypes.c_void_p, uuid: Any, gpu: Any, is_stack: Any, stack: Any
    ) -> int:
        device, part = divmod(UUID(bytes=bytes(uuid.id)).int, 10)
        if not self.asked or device != {101: 1, 102: 3}[driver.value or 0]:
            return 0x78000004
        gpu._obj.value, is_stack._obj.value, stack._obj.value = device, part > 0, max(part - 1, 0)
        return 0

    def listed(self, kind: str, gpu: ctypes.c_void_p, count: Any, handles: Any) -> int:
        device = gpu.value or 0
        return _list(tuple(100 * device + i for i in range(len(PARTS[kind][device]))), count, handles)

    def part(self, kind: str, handle: ctypes.c_void_p) -> tuple[int, int | None, float]:
        gpu, index = divmod(handle.value or 0, 100)
        return PARTS[kind][gpu][index]

    def described(self, kind: str, stype: int, handle: ctypes.c_void_p, found: Any) -> int:
        place, (type, stack, _) = found._obj, self.part(kind, handle)
        assert place.stype == stype
        place.is_of_stack, place.stack = stack is not None, stack or 0
        if kind != "Power":
            place.type = type
        elif handle.value != 300:
            domain = ctypes.cast(place.next, ctypes.POINTER(level_zero.PowerDomain)).contents
            assert domain.stype == 0x28
            domain.type = type
        return 0

    def state(self, kind: str, handle: ctypes.c_void_p, found: Any) -> int:
        state, value, self.seconds = found._obj, self.part(kind, handle)[2], self.seconds + 1
        if kind in ("Power", "Engine"):
            state.time, state.value = 10**6 * self.seconds, int(10**6 * self.seconds * value)
        elif kind == "Frequency" and state.stype == 0x1B:
            state.actual, state.reasons = value, {1500: 0x101}.get(int(value), 0)
        elif kind == "Memory" and state.stype == 0x1E:
            state.size, state.free = 64, 64 - int(value)
        else:
            state.value = value
        return 0


for kind, described, names in (
    ("Power", 0xD, "DeviceEnumPowerDomains PowerGetProperties PowerGetEnergyCounter"),
    ("Engine", 0x5, "DeviceEnumEngineGroups EngineGetProperties EngineGetActivity"),
    ("Frequency", 0x9, "DeviceEnumFrequencyDomains FrequencyGetProperties FrequencyGetState"),
    ("Memory", 0xB, "DeviceEnumMemoryModules MemoryGetProperties MemoryGetState"),
    ("Temperature", 0x14, "DeviceEnumTemperatureSensors TemperatureGetProperties TemperatureGetState"),
):
    of_kind = {"listed": (kind,), "described": (kind, described), "state": (kind,)}
    for name, (method, words) in zip(names.split(), of_kind.items()):
        setattr(Sysman, f"zes{name}", partialmethod(getattr(Sysman, method), *words))


def test_a_device_is_found_by_its_uuid_and_what_it_has_not_is_unknown(
    monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    def broken(library: type, failing: str, how: object) -> None:
        made = type("Library", (library,), {failing: how} if failing else {})
        monkeypatch.setattr(level_zero.ctypes, "CDLL", lambda name: made())

    def address(of: int | str, failing: str = "", how: object = lambda self, *words: 0x78000001) -> str:
        broken(LevelZero, failing, how)
        return pci_address(str(UUID(int=of)) if isinstance(of, int) else of)

    def read(of: int, failing: str = "", how: object = lambda self, *words: UNSUPPORTED) -> list[Any]:
        """The first reading, and what is new in the second."""
        broken(Sysman, failing, how)
        device = intel.open_device(str(UUID(int=of)))
        first, second = plausible(device()), plausible(device())
        return [first, {name: value for name, value in second.items() if value != first.get(name)}]

    assert pci_address(str(UUID(int=1))) == ""
    known = {**globals(), "address": address, "read": read, "sizeof": ctypes.sizeof}
    comes_to_what_was_read("level_zero.txt", known)
