"""A stand-in for NVML's Python module, on PYTHONPATH of a process: one device of known power.

A test compares its names and signatures with the real module's. FAKE_NVML_TROUBLE says what goes wrong, and
FAKE_NVML_AFTER after how many readings: vanish, hang or nonsense.
"""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import Any

UUID = "GPU-12345678-1234-1234-1234-123456789abc"
WATTS = 321.0
HANG_SECONDS = 10.0
TROUBLE, AFTER = os.environ.get("FAKE_NVML_TROUBLE", ""), int(os.environ.get("FAKE_NVML_AFTER", "3"))

NVML_TEMPERATURE_GPU = 0
NVML_CLOCK_SM = 1
NVML_CLOCK_MEM = 2

_readings = 0


class NVMLError(Exception):
    pass


class NVMLError_NotSupported(NVMLError):  # noqa: N801  as NVML calls it
    pass


class NVMLError_NoPermission(NVMLError):  # noqa: N801
    pass


class NVMLError_GpuIsLost(NVMLError):  # noqa: N801
    pass


class NVMLError_NotFound(NVMLError):  # noqa: N801
    pass


def nvmlInit() -> None:  # noqa: N802
    pass


def nvmlDeviceGetHandleByUUID(uuid: Any) -> str:  # noqa: N802
    if uuid != UUID:
        raise NVMLError_NotFound("Not Found")
    return UUID


def nvmlDeviceGetUtilizationRates(handle: Any) -> Any:  # noqa: N802
    """The first value that is read each second."""
    global _readings
    _readings += 1
    _there()
    if TROUBLE == "hang" and _readings == AFTER + 1:
        time.sleep(HANG_SECONDS)
    return SimpleNamespace(gpu=87, memory=41)


def nvmlDeviceGetMemoryInfo(handle: Any, version: Any = None) -> Any:  # noqa: N802
    _there()
    return SimpleNamespace(total=150 << 30, free=50 << 30, used=100 << 30)


def nvmlDeviceGetPowerUsage(handle: Any) -> int:  # noqa: N802
    """Milliwatts."""
    _there()
    return -17 if _in_trouble("nonsense") else round(WATTS * 1000)


def nvmlDeviceGetTotalEnergyConsumption(handle: Any) -> int:  # noqa: N802
    """Millijoules since the driver was loaded."""
    _there()
    if _in_trouble("nonsense"):
        return (1 << 64) - 1
    return round(WATTS * 1000 * (time.time() - 1.7e9))


def nvmlDeviceGetTemperature(handle: Any, sensor: Any) -> int:  # noqa: N802
    _there()
    return 1 << 30 if _in_trouble("nonsense") else 64


def nvmlDeviceGetClockInfo(handle: Any, type: Any) -> int:  # noqa: N802
    """MHz."""
    _there()
    return {NVML_CLOCK_SM: 1755, NVML_CLOCK_MEM: 2619}[type]


def nvmlDeviceGetCurrentClocksThrottleReasons(handle: Any) -> int:  # noqa: N802
    _there()
    return 0x4 | 0x20 if _readings % 2 else 0x1


def _there() -> None:
    """A device that is lost answers no question any more."""
    if _in_trouble("vanish"):
        raise NVMLError_GpuIsLost("GPU is lost")


def _in_trouble(kind: str) -> bool:
    return kind == TROUBLE and _readings > AFTER
