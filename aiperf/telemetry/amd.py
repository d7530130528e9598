"""Devices of AMD, by AMD SMI: the package amdsmi, which ROCm brings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from aiperf.telemetry.sensor import Reading

__all__ = ["open_amd"]


def open_amd(identity: str) -> Callable[[], Reading]:
    """`identity` is the UUID as torch tells it. Raises what AMD SMI raises, and LookupError."""
    import amdsmi

    amdsmi.amdsmi_init()
    for handle in amdsmi.amdsmi_get_processor_handles():
        serial = str(amdsmi.amdsmi_get_gpu_asic_info(handle)["asic_serial"])
        if serial.lower().removeprefix("0x") in _spellings(identity):
            return lambda: dict(_read(amdsmi, handle))
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


def _read(smi: Any, handle: Any) -> Iterator[tuple[str, Any]]:
    """What this device has; "N/A" and the largest 16-bit number stand for what it has not."""
    metrics = smi.amdsmi_get_gpu_metrics_info(handle)

    def first(*names: str) -> float | None:
        values = (metrics.get(name) for name in names)
        return next((v for v in values if isinstance(v, (int, float)) and v != 0xFFFF), None)

    def scaled(value: float | None, factor: float) -> float | None:
        return None if value is None else value * factor

    yield "utilisation", scaled(first("average_gfx_activity"), 0.01)
    yield "power_watts", first("current_socket_power", "average_socket_power")
    yield "temperature_celsius", first("temperature_hotspot", "temperature_edge")
    yield "clock_hertz", scaled(first("current_gfxclk", "average_gfxclk_frequency"), 1e6)
    yield "memory_clock_hertz", scaled(first("current_uclk", "average_uclk_frequency"), 1e6)
    yield "throttled", ["throttle status"] if first("indep_throttle_status", "throttle_status") else []
    vram = smi.AmdSmiMemoryType.VRAM
    for name, read in (
        ("memory_bytes", lambda: smi.amdsmi_get_gpu_memory_usage(handle, vram)),
        ("energy_joules", lambda: _joules(smi.amdsmi_get_energy_count(handle))),
    ):
        try:
            yield name, read()
        except smi.AmdSmiLibraryException:  # this value is not supported here
            yield name, None


def _joules(count: Any) -> float:
    """`power` was the name of the accumulator before ROCm 6.2; the resolution is in microjoules."""
    accumulated = count["energy_accumulator"] if "energy_accumulator" in count else count["power"]
    return float(accumulated) * float(count["counter_resolution"]) / 1e6
