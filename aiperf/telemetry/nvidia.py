"""Sensors of NVIDIA's devices, through NVML: the package nvidia-ml-py, which provides `pynvml`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aiperf.telemetry.sensor import Reading, each

# Bits of nvmlClocksEventReasons, NVML API reference. "Idle" is left out: an idle device is not held back.
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
    """A function that reads the device once. `identity` is the UUID as torch reports it, without NVML's
    prefix. Raises what NVML raises."""
    import pynvml

    pynvml.nvmlInit()
    handle = _handle(pynvml, identity)
    return lambda: _read(pynvml, handle)


def _handle(nvml: Any, identity: str) -> Any:
    """NVML's handle of the device, or of a MIG instance: if there is one, CUDA reports the instance's
    UUID."""
    if identity.startswith(("GPU-", "MIG-")):
        return nvml.nvmlDeviceGetHandleByUUID(identity)
    try:
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{identity}")
    except nvml.NVMLError_NotFound:
        return nvml.nvmlDeviceGetHandleByUUID(f"MIG-{identity}")


def _read(nvml: Any, handle: Any) -> Reading:
    """The values that this device has. NVML raises separately for each value that the device, the driver or
    the user's permissions do not allow; such a value is left out.

    Raises what NVML raised for the last value if all of them failed.
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
