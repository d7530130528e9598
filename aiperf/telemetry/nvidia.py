"""Devices of NVIDIA, by NVML: the package nvidia-ml-py, which provides `pynvml`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aiperf.telemetry.sensor import Reading, each

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


def open_device(identity: str) -> Callable[[], Reading]:
    """`identity` is the UUID as torch tells it, without NVML's prefix. Raises what NVML raises."""
    import pynvml

    pynvml.nvmlInit()
    handle = _handle(pynvml, identity)
    return lambda: _read(pynvml, handle)


def _handle(nvml: Any, identity: str) -> Any:
    """Of the device, or of the slice of one (MIG): CUDA tells the slice's UUID where there is one."""
    if identity.startswith(("GPU-", "MIG-")):
        return nvml.nvmlDeviceGetHandleByUUID(identity)
    try:
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{identity}")
    except nvml.NVMLError_NotFound:
        return nvml.nvmlDeviceGetHandleByUUID(f"MIG-{identity}")


def _read(nvml: Any, handle: Any) -> Reading:
    """What this device has: NVML raises for each value by itself that a device, a driver or a user has not.

    Raises what NVML raises for the last one where there is none.
    """
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
    return each(reads, nvml.NVMLError)


def _reasons(bits: int) -> list[str]:
    return [name for bit, name in REASONS.items() if bits & bit]
