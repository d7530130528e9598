"""Devices of AMD, by AMD SMI: the package amdsmi, which ROCm brings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from aiperf.telemetry.sensor import Reading, each

# What a device has not is "N/A", or the largest number of the field, which older releases hand on.
ABSENT = (0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
# Of MI300 and later: time in which something held the device back, since the driver was loaded. AMD SMI, "GPU
# violations"; what rose since the reading before held it back.
RESIDENCIES: Mapping[str, str] = {
    "prochot_residency_acc": "processor hot",
    "ppt_residency_acc": "power cap",
    "socket_thm_residency_acc": "temperature",
    "vr_thm_residency_acc": "temperature of a voltage regulator",
    "hbm_thm_residency_acc": "temperature of memory",
}
# Of those before: bits of indep_throttle_status, Linux, drivers/gpu/drm/amd/pm/swsmu/inc/amdgpu_smu.h.
REASONS: Mapping[int, str] = {
    0xFF: "power cap",
    0xFF << 16: "current",
    0xFFFF << 32: "temperature",
    0xFF << 56: "reliability",
}


def open_device(identity: str) -> Callable[[], Reading]:
    """`identity` is the UUID as torch tells it. Raises what AMD SMI raises, and LookupError."""
    import amdsmi

    amdsmi.amdsmi_init()
    for handle in amdsmi.amdsmi_get_processor_handles():
        try:
            serial = str(amdsmi.amdsmi_get_gpu_asic_info(handle)["asic_serial"])
        except amdsmi.AmdSmiLibraryException:  # another device, and a broken one
            continue
        if serial.lower().removeprefix("0x") in _spellings(identity):
            return _Device(amdsmi, handle).read
    raise LookupError(f"AMD SMI knows no device {identity}")


def _spellings(identity: str) -> Iterator[str]:
    """HIP's UUID holds the sixteen hexadecimal digits of the serial number as text, which torch prints
    as the hexadecimal digits of that text."""
    digits = identity.lower().removeprefix("gpu-").replace("-", "")
    yield digits
    try:
        yield bytes.fromhex(digits).decode("ascii").lower()
    except ValueError:
        return


class _Device:
    """Remembers the accumulators of its reading before."""

    def __init__(self, smi: Any, handle: Any) -> None:
        self._smi, self._handle = smi, handle
        self._residencies: Mapping[str, float] = {}

    def read(self) -> Reading:
        """What this device has. Raises what AMD SMI raises where there is nothing."""
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
    """None where the device does not tell, and in the first reading of one that tells by accumulators."""
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
    """`power` was the name of the accumulator before ROCm 6.2; the resolution is in microjoules."""
    accumulated = count["energy_accumulator"] if "energy_accumulator" in count else count["power"]
    return float(accumulated) * float(count["counter_resolution"]) / 1e6
