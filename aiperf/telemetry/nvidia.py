"""Devices of NVIDIA, by NVML: the package nvidia-ml-py, which provides `pynvml`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from aiperf.telemetry.sensor import Reading

__all__ = ["open_nvidia"]

# Bits of nvmlClocksEventReasons, NVML API reference. "Idle" is none: an idle device is not held back.
REASONS: Mapping[int, str] = {
    0x002: "application clocks",
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "temperature",
    0x040: "temperature, hardware",
    0x080: "power brake",
    0x100: "display clocks",
}


def open_nvidia(identity: str) -> Callable[[], Reading]:
    """`identity` is the UUID as torch tells it, without NVML's prefix. Raises what NVML raises."""
    import pynvml

    pynvml.nvmlInit()
    known = identity if identity.startswith(("GPU-", "MIG-")) else f"GPU-{identity}"
    handle = pynvml.nvmlDeviceGetHandleByUUID(known)
    return lambda: dict(_read(pynvml, handle))


def _read(nvml: Any, handle: Any) -> Iterator[tuple[str, Any]]:
    """What this device has; NVML raises NotSupported for each value by itself."""
    reads: Mapping[str, Callable[[], Any]] = {
        "utilisation": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
        "memory_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,
        "power_watts": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
        "energy_joules": lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3,
        "temperature_celsius": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        "clock_hertz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6,
        "memory_clock_hertz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM) * 1e6,
        "throttled": lambda: _reasons(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
    }
    unsupported = (nvml.NVMLError_NotSupported, nvml.NVMLError_NoPermission)
    for name, read in reads.items():
        try:
            yield name, read()
        except unsupported:
            yield name, None


def _reasons(bits: int) -> list[str]:
    return [name for bit, name in REASONS.items() if bits & bit]
