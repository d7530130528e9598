"""Sensors of Intel's GPUs, through Level Zero. A stack of a GPU is what Level Zero calls a sub-device."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from aiperf.telemetry.level_zero import (
    CLOCK_STATE,
    CLOCKS,
    ENGINES,
    LIBRARY,
    MEMORIES,
    MEMORY_STATE,
    POWER_DOMAIN,
    POWERS,
    TEMPERATURES,
    ClockState,
    Component,
    Counter,
    MemoryState,
    Power,
    PowerDomain,
    Uuid,
    handles,
)
from aiperf.telemetry.sensor import Reading, each

PARTS: Mapping[int, tuple[str, str]] = {
    ENGINES: ("zesDeviceEnumEngineGroups", "zesEngineGetProperties"),
    CLOCKS: ("zesDeviceEnumFrequencyDomains", "zesFrequencyGetProperties"),
    MEMORIES: ("zesDeviceEnumMemoryModules", "zesMemoryGetProperties"),
    POWERS: ("zesDeviceEnumPowerDomains", "zesPowerGetProperties"),
    TEMPERATURES: ("zesDeviceEnumTemperatureSensors", "zesTemperatureGetProperties"),
}
"""What lists the parts of a device, and what describes one."""
# Types of parts; if several are given, the first that a device has is read.
COMPUTE_OR_ALL = (1, 0)
"""Numbers of zes_engine_group_t."""
CORE = (0,)
"""A number of zes_freq_domain_t."""
GPU_OR_DEVICE = (1, 0)
"""Numbers of zes_temp_sensors_t: the highest temperature of each."""
WHOLE, STACK_OR_PACKAGE = (1, 0), (3, 2, 0)
"""Numbers of zes_power_domain_t. Drivers that do not tell them, which leaves 0, have one of the GPU and
one of each stack."""
REASONS: Mapping[int, str] = {
    0x001: "power cap",
    0x002: "power cap, burst",
    0x004: "current",
    0x008: "temperature limit",
    0x010: "power supply",
    0x020: "clock limit of software",
    0x040: "clock limit of hardware",
    0x080: "voltage",
    0x100: "temperature",
    0x200: "power",
}
"""Bits of zes_freq_throttle_reason_flags_t."""


def open_device(identity: str) -> Callable[[], Reading]:
    """A function that reads the device once; `identity` is the UUID as torch reports it, of a GPU or of one
    of its stacks. Raises OSError without the library, AttributeError if the library is older than version
    1.9.1 of the specification, and LookupError without the device."""
    library, uuid = ctypes.CDLL(LIBRARY), Uuid.from_buffer_copy(UUID(identity).bytes)
    if code := library.zesInit(0):
        raise LookupError(f"zesInit answers {code:#x}")
    for driver in handles(library.zesDriverGet):
        handles(library.zesDeviceGet, driver)  # newer drivers find their devices only then
        device, is_stack, stack = ctypes.c_void_p(), ctypes.c_ubyte(), ctypes.c_uint()
        found = map(ctypes.byref, (device, is_stack, stack))
        if library.zesDriverGetDeviceByUuidExp(driver, uuid, *found) == 0:
            return _Gpu(library, device, stack.value if is_stack else None).read
    raise LookupError(f"Level Zero knows no device {identity}")


class _Gpu:
    """A GPU, or one of its stacks, with the counters of its last reading."""

    def __init__(self, library: Any, whole: ctypes.c_void_p, stack: int | None) -> None:
        self._library, self._whole, self._stack = library, whole, stack
        self._before: Mapping[str, Sequence[Counter]] = {}

    def read(self) -> Reading:
        """The values that this device has; power and utilisation are those since the last reading. Raises
        LookupError if it has none."""
        reads: Mapping[str, Callable[[], Any]] = {
            "energy": lambda: self._counters(POWERS, WHOLE if self._stack is None else STACK_OR_PACKAGE),
            "activity": lambda: self._counters(ENGINES, COMPUTE_OR_ALL),
            "clocks": self._clocks,
            "memory_bytes": self._used,
            "temperature_celsius": self._hottest,
        }
        found = each(reads, LookupError)
        before, self._before = self._before, {name: found.pop(name) or [] for name in ("energy", "activity")}
        watts, shares = (_rates(before.get(name, []), now) for name, now in self._before.items())
        energy, clocks = self._before["energy"], found.pop("clocks")
        return {
            **found,
            "energy_joules": sum(each.value for each in energy) / 1e6 if energy else None,
            "power_watts": sum(watts) if watts else None,
            "utilisation": sum(shares) / len(shares) if shares else None,
            "clock_hertz": min(clock.actual for clock in clocks) * 1e6 if clocks else None,
            "throttled": _reasons(clocks) if clocks else None,
        }

    def _counters(self, kind: int, types: Sequence[int]) -> list[Counter]:
        function = "zesPowerGetEnergyCounter" if kind == POWERS else "zesEngineGetActivity"
        return [self._asked(function, part, Counter()) for part in self._parts(kind, types)]

    def _clocks(self) -> list[ClockState]:
        parts = self._parts(CLOCKS, CORE)
        return [self._asked("zesFrequencyGetState", part, ClockState(CLOCK_STATE)) for part in parts]

    def _used(self) -> float:
        """Bytes that are used in all its memories."""
        parts = self._parts(MEMORIES)
        states = [self._asked("zesMemoryGetState", part, MemoryState(MEMORY_STATE)) for part in parts]
        return float(sum(state.size - state.free for state in states))

    def _hottest(self) -> float:
        parts = self._parts(TEMPERATURES, GPU_OR_DEVICE)
        found = [self._asked("zesTemperatureGetState", part, ctypes.c_double()) for part in parts]
        return float(max(each.value for each in found))

    def _parts(self, kind: int, types: Sequence[int] = ()) -> list[ctypes.c_void_p]:
        """Its parts of a kind, of the first of these types that it has. A GPU without parts of its own has
        those of its stacks; but these do not use all its energy. Raises LookupError if there are none."""
        listing, _ = PARTS[kind]
        listed = handles(getattr(self._library, listing), self._whole)
        every = [(*self._described(kind, part), part) for part in listed]
        own = [(type, part) for type, stack, part in every if stack == self._stack]
        if not own and self._stack is None and kind != POWERS:
            own = [(type, part) for type, _, part in every]
        for type in types or sorted({type for type, _ in own}):
            if parts := [part for other, part in own if other == type]:
                return parts
        raise LookupError(f"{listing} lists none of this device")

    def _described(self, kind: int, part: ctypes.c_void_p) -> tuple[int, int | None]:
        """The type of a part, and the stack that it is of; None if it is the whole GPU's."""
        domain = PowerDomain(POWER_DOMAIN)
        place = Power(POWERS, ctypes.addressof(domain)) if kind == POWERS else Component(kind)
        _, describing = PARTS[kind]
        self._asked(describing, part, place)
        type = domain.type if kind == POWERS else place.type
        return type, place.stack if place.is_of_stack else None

    def _asked(self, function: str, part: ctypes.c_void_p, into: Any) -> Any:
        """The structure, or number, as the function has filled it. Raises LookupError if it fails."""
        if code := getattr(self._library, function)(part, ctypes.byref(into)):
            raise LookupError(f"{function} answers {code:#x}")
        return into


def _rates(before: Sequence[Counter], now: Sequence[Counter]) -> list[float]:
    """By how much each counter has risen in each microsecond: watts, or a share of time. Empty before the
    second reading."""
    both = [(old, new) for old, new in zip(before, now) if new.time > old.time]
    return [(new.value - old.value) / (new.time - old.time) for old, new in both]


def _reasons(clocks: Sequence[ClockState]) -> list[str]:
    """Why any of its stacks is throttled."""
    return [reason for bit, reason in REASONS.items() if any(clock.reasons & bit for clock in clocks)]
