"""AMD's and Huawei's libraries are read as they are documented; here against stand-ins of them."""

from __future__ import annotations

import ctypes
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from aiperf.telemetry import ascend
from aiperf.telemetry.amd import open_amd
from aiperf.telemetry.ascend import open_ascend
from aiperf.telemetry.sensor import plausible

SERIAL = "0x2F5C3A4B1D6E7F80"
METRICS = {
    "average_gfx_activity": 93,
    "current_socket_power": 745,
    "average_socket_power": "N/A",
    "temperature_hotspot": 71,
    "current_gfxclk": 2088,
    "current_uclk": 1300,
    "throttle_status": "N/A",
    "indep_throttle_status": 0,
}


class AmdSmi(ModuleType):
    """amdsmi of ROCm 6.4: rocm.docs.amd.com/projects/amdsmi, "Python API reference"."""

    AmdSmiLibraryException = type("AmdSmiLibraryException", (Exception,), {})
    AmdSmiMemoryType = SimpleNamespace(VRAM=0)

    def __init__(self, metrics: dict[str, Any], energy: dict[str, Any] | None) -> None:
        super().__init__("amdsmi")
        self.metrics, self.energy = metrics, energy

    def amdsmi_init(self, flag: Any = None) -> None:
        pass

    def amdsmi_get_processor_handles(self) -> list[str]:
        return ["other", "handle"]

    def amdsmi_get_gpu_asic_info(self, processor_handle: str) -> dict[str, Any]:
        return {"market_name": "MI300X", "asic_serial": SERIAL if processor_handle == "handle" else "0x1"}

    def amdsmi_get_gpu_metrics_info(self, processor_handle: str) -> dict[str, Any]:
        assert processor_handle == "handle"
        return self.metrics

    def amdsmi_get_gpu_memory_usage(self, processor_handle: str, mem_type: int) -> int:
        return 64 << 30

    def amdsmi_get_energy_count(self, processor_handle: str) -> dict[str, Any]:
        if self.energy is None:
            raise self.AmdSmiLibraryException("not supported")
        return self.energy


def amd(monkeypatch: pytest.MonkeyPatch, identity: str, **changed: Any) -> dict[str, Any]:
    energy = changed.pop("energy", {"energy_accumulator": 10**9, "counter_resolution": 15.3, "timestamp": 1})
    monkeypatch.setitem(sys.modules, "amdsmi", AmdSmi({**METRICS, **changed}, energy))
    return plausible(open_amd(identity)())


AS_TORCH_PRINTS = "32663563-3361-3462-3164-366537663830"
"""The sixteen digits of the serial number as text, in hexadecimal digits."""


@pytest.mark.parametrize("identity", [AS_TORCH_PRINTS, "2f5c3a4b1d6e7f80"])
def test_an_amd_device_is_found_by_its_serial_number(monkeypatch: pytest.MonkeyPatch, identity: str) -> None:
    assert amd(monkeypatch, identity) == {
        "utilisation": 0.93,
        "power_watts": 745,
        "temperature_celsius": 71,
        "clock_hertz": 2.088e9,
        "memory_clock_hertz": 1.3e9,
        "throttled": [],
        "memory_bytes": 64 << 30,
        "energy_joules": pytest.approx(15300.0),
    }


def test_an_amd_device_that_is_another_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LookupError, match="knows no device"):
        amd(monkeypatch, "32663563-3361-3462-3164-366537663831")


def test_what_an_amd_device_has_not_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    found = amd(monkeypatch, AS_TORCH_PRINTS, energy=None, current_gfxclk=0xFFFF, current_socket_power="N/A")
    assert "energy_joules" not in found
    assert "power_watts" not in found
    assert "clock_hertz" not in found


def test_the_older_name_of_an_accumulator_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    found = amd(monkeypatch, AS_TORCH_PRINTS, energy={"power": 2 * 10**9, "counter_resolution": 15.3})
    assert found["energy_joules"] == pytest.approx(30600.0)


class Dcmi:
    """libdcmi.so: hiascend.com, "DCMI API reference"; a number other than 0 is an error."""

    def dcmi_init(self) -> int:
        return 0

    def dcmi_get_card_id_device_id_from_logicid(self, board: Any, device: Any, logic: Any) -> int:
        if logic.value != 5:
            return -8005
        board._obj.value, device._obj.value = 2, 1
        return 0

    def dcmi_get_device_power_info(self, board: int, device: int, power: Any) -> int:
        assert (board, device) == (2, 1)
        power._obj.value = 2875  # tenths of a watt
        return 0

    def dcmi_get_device_temperature(self, board: int, device: int, temperature: Any) -> int:
        temperature._obj.value = 58
        return 0

    def dcmi_get_device_utilization_rate(self, board: int, device: int, kind: int, rate: Any) -> int:
        assert kind == 2
        rate._obj.value = 96
        return 0

    def dcmi_get_device_hbm_info(self, board: int, device: int, info: Any) -> int:
        info._obj.memory_size, info._obj.memory_usage = 65536, 32768
        return 0

    def dcmi_get_device_aicore_info(self, board: int, device: int, info: Any) -> int:
        return -8255  # not supported


def test_an_ascend_device_is_found_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ascend.ctypes, "CDLL", lambda name: Dcmi())
    assert plausible(open_ascend("npu-5")()) == {
        "power_watts": 287.5,
        "temperature_celsius": 58.0,
        "utilisation": 0.96,
        "memory_bytes": 32 << 30,
    }
    with pytest.raises(LookupError, match="knows no device 6"):
        open_ascend("npu-6")


def test_the_structures_are_as_large_as_in_c() -> None:
    """On 64-bit Linux: 8, 4 (and 4 of padding), 8, 4, 4 bytes."""
    assert ctypes.sizeof(ascend._Hbm) == 32
    assert ctypes.sizeof(ascend._AiCore) == 8
