"""Sensors of AMD's devices, through AMD SMI: the package amdsmi, which is part of ROCm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from aiperf.telemetry.sensor import Reading, each

# A value that a device does not have is "N/A"; older releases report the largest number of the field instead.
ABSENT = (0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
# For MI300 and later: time for which each cause has throttled the device since the driver was loaded (AMD
# SMI, "GPU violations"). A cause whose time has risen since the last reading has throttled the device.
RESIDENCIES: Mapping[str, str] = {
    "prochot_residency_acc": "processor hot",
    "ppt_residency_acc": "power cap",
    "socket_thm_residency_acc": "temperature",
    "vr_thm_residency_acc": "temperature of a voltage regulator",
    "hbm_thm_residency_acc": "temperature of memory",
}
# For earlier devices: bits of indep_throttle_status, Linux, drivers/gpu/drm/amd/pm/swsmu/inc/amdgpu_smu.h.
REASONS: Mapping[int, str] = {
    0xFF: "power cap",
    0xFF << 16: "current",
    0xFFFF << 32: "temperature",
    0xFF << 56: "reliability",
}


def open_device(identity: str) -> Callable[[], Reading]:
    """A function that reads the device once. `identity` is the UUID as torch reports it. Raises what AMD SMI
    raises, and LookupError if there is no such device."""
    import amdsmi

    amdsmi.amdsmi_init()
    for handle in amdsmi.amdsmi_get_processor_handles():
        try:
            serial = str(amdsmi.amdsmi_get_gpu_asic_info(handle)["asic_serial"])
        except amdsmi.AmdSmiLibraryException:  # a broken device, which is another one
            continue
        if serial.lower().removeprefix("0x") in _spellings(identity):
            return _Device(amdsmi, handle).read
    raise LookupError(f"AMD SMI knows no device {identity}")


def _spellings(identity: str) -> Iterator[str]:
    """Possible serial numbers for a UUID. HIP's UUID contains the sixteen hexadecimal digits of the serial
    number as text, and torch prints the bytes of that text in hexadecimal digits."""
    digits = identity.lower().removeprefix("gpu-").replace("-", "")
    yield digits
    try:
        yield bytes.fromhex(digits).decode("ascii").lower()
    except ValueError:
        return


class _Device:
    """A device, with the accumulated times of its last reading."""

    def __init__(self, smi: Any, handle: Any) -> None:
        self._smi, self._handle = smi, handle
        self._residencies: Mapping[str, float] = {}

    def read(self) -> Reading:
        """The values that this device has. Raises what AMD SMI raises if it has none."""
        smi, handle = self._smi, self._handle
        found = each(
            {
                "metrics": lambda: smi.amdsmi_get_gpu_metrics_info(handle),
                "memory_bytes": lambda: smi.amdsmi_get_gpu_memory_usage(handle, smi.AmdSmiMemoryType.VRAM),
                "energy_joules": lambda: _joules(smi.amdsmi_get_energy_count(handle)),
            },
            smi.AmdSmiLibraryException,
        )
        metrics = found.pop("metrics") or {}
        before, self._residencies = self._residencies, _residencies(metrics)
        return {**_values(metrics), **found, "throttled": _throttled(metrics, before)}


def _values(metrics: Mapping[str, Any]) -> Reading:
    """The values that the metrics have. Newer devices report the current value of what older ones average."""

    def first(*names: str, factor: float = 1) -> float | None:
        known = (_number(metrics, name) for name in names)
        value = next((value for value in known if value is not None), None)
        return None if value is None else value * factor

    return {
        "utilisation": first("average_gfx_activity", factor=0.01),
        "power_watts": first("current_socket_power", "average_socket_power"),
        "temperature_celsius": first("temperature_hotspot", "temperature_edge"),
        "clock_hertz": first("current_gfxclk", "average_gfxclk_frequency", factor=1e6),
        "memory_clock_hertz": first("current_uclk", "average_uclk_frequency", factor=1e6),
    }


def _number(metrics: Mapping[str, Any], name: str) -> float | None:
    value = metrics.get(name)
    return value if isinstance(value, (int, float)) and value not in ABSENT else None


def _residencies(metrics: Mapping[str, Any]) -> dict[str, float]:
    numbers = {name: _number(metrics, name) for name in RESIDENCIES}
    return {name: number for name, number in numbers.items() if number is not None}


def _throttled(metrics: Mapping[str, Any], before: Mapping[str, float]) -> list[str] | None:
    """Reasons why the device is throttled. None if the device does not report them, and in the first reading
    of one that reports accumulated times."""
    now = _residencies(metrics)
    if now:
        risen = [RESIDENCIES[name] for name in now if name in before and now[name] > before[name]]
        return risen if before else None
    bits, status = _number(metrics, "indep_throttle_status"), _number(metrics, "throttle_status")
    if bits is None and status is None:
        return None
    named = [reason for mask, reason in REASONS.items() if int(bits or 0) & mask]
    return named or (["throttle status"] if bits or status else [])


def _joules(count: Any) -> float:
    """Energy in joules. The resolution of the accumulator is in microjoules; before ROCm 6.2 its name was
    `power`."""
    accumulated = count["energy_accumulator"] if "energy_accumulator" in count else count["power"]
    return float(accumulated) * float(count["counter_resolution"]) / 1e6
