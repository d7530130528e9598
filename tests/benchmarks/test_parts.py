"""What the parts of benchmarks/device.py compute that no processor can show: vendors' tools, energy."""

from __future__ import annotations

import mmap
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from aiperf.device.cpu import Cpu
from benchmarks.on_device import counting, machine, memory, number_formats, sensors
from benchmarks.on_device.page import page
from benchmarks.on_device.parts import Setting
from benchmarks.on_device.rows import Figures
from benchmarks.on_device.sensors import Reading, _compared, joules, of_amd, of_nvidia
from benchmarks.on_device.state import Measured
from nas.seeds import residual
from tests.aiperf.telemetry.fakes import pynvml as fake

# nvidia-smi --query-gpu=power.draw,clocks.sm,clocks.mem,temperature.gpu,utilization.gpu,memory.used
LINE = "652.31, 1980, 3201, 61, 100, 70123\n"


def test_a_line_of_nvidia_smi() -> None:
    assert of_nvidia(LINE) == {
        "power_watts": 652.31,
        "clock_hertz": 1980e6,
        "memory_clock_hertz": 3201e6,
        "temperature_celsius": 61.0,
        "utilisation": 1.0,
        "memory_bytes": 70123 * 2**20,
    }
    assert of_nvidia("[N/A], 1980, 3201, 61, [Not Supported], 1\n").keys() == {
        "clock_hertz",
        "memory_clock_hertz",
        "temperature_celsius",
        "memory_bytes",
    }
    assert of_nvidia("") == {}


def test_rocm_smi() -> None:
    text = (
        '{"card0": {"Temperature (Sensor junction) (C)": "54.0", "Temperature (Sensor memory) (C)": "40.0",'
        ' "Current Socket Graphics Package Power (W)": "143.0"}}'
    )
    assert of_amd(text) == {"power_watts": 143.0, "temperature_celsius": 54.0}
    assert of_amd("") == {}


def readings(own_watts: float, told_watts: float) -> list[Reading]:
    return [
        Reading(
            float(second),
            {"power_watts": own_watts, "energy_joules": 1000 + own_watts * second},
            {"power_watts": told_watts},
        )
        for second in range(11)
    ]


def test_energy_is_compared_with_power_and_time() -> None:
    assert joules(readings(300.0, 310.0)) == (3000.0, pytest.approx(3100.0))
    assert joules(readings(300.0, 310.0)[:1]) == (None, None)


def test_a_sensor_that_differs_from_the_tool_is_a_fault() -> None:
    idle = readings(60.0, 60.0)
    assert _compared(idle, readings(300.0, 310.0), "nvidia-smi")[1] == []
    faults = _compared(idle, readings(300.0, 600.0), "nvidia-smi")[1]
    assert faults == [
        "power_watts, at work: 300 here, 600 by the vendor's tool",
        "energy_joules, of the work: 3000 here, 6000 by the vendor's tool",
    ]


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting("cpu", tmp_path, 6.0)


def test_a_machine_that_has_what_a_run_needs(setting: Setting) -> None:
    found = machine.measure(setting)
    assert found["faults"] == []
    assert found["rows"][0]["found"] == 1


def test_formats_are_right_on_a_processor(setting: Setting) -> None:
    found = number_formats.measure(setting)
    assert found["faults"] == []
    assert [row["found"] for row in found["rows"] if row["by"] == "declared"] == ["bf16"] * 2 + ["fp32"] * 2


def test_a_count_that_is_not_the_counters_is_a_fault(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counter's own formula for gradients, as if every convolution had only one gradient."""
    monkeypatch.setattr(counting, "resnet50", lambda input: residual())
    assert counting.measure(setting)["faults"] == []
    monkeypatch.setattr(counting, "_gradients", lambda grad, *rest, out_shape=None: 1)
    faults = counting.measure(setting)["faults"]
    assert len(faults) == 2
    assert faults[0].startswith("digits' seed, backward: 3,089,024 operations here, ")


def test_memory_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = memory._Watch()
    with mmap.mmap(-1, 64 << 20) as block:  # fresh from the system: malloc may still have some
        for _ in range(64):
            block.write(b"x" * (1 << 20))
        assert 0.9 * len(block) < watch.end() < 2 * len(block)


@dataclass(frozen=True)
class WithSensors(Cpu):
    """A processor that is read as a device of NVIDIA is."""

    @property
    def sensors(self) -> str:
        return "nvidia"

    @property
    def identity(self) -> str:
        return fake.UUID


@pytest.mark.parametrize(("watts", "faults"), [(fake.WATTS, 0), (2 * fake.WATTS, 1)])
def test_sensors_beside_the_vendors_tool(
    setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watts: float, faults: int
) -> None:
    """NVML and nvidia-smi are stand-ins; the work, the readings and the comparison are real."""
    tool = tmp_path / "nvidia-smi"
    clock = fake.nvmlDeviceGetClockInfo(None, fake.NVML_CLOCK_SM)
    tool.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/asked\necho "{watts}, {clock}, 1, 61, 87, 102400"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(sensors, "bind", lambda kind, index: WithSensors(0, "A device", 8 << 30))
    short = {"IDLE_SECONDS": 0.5, "LOAD_SECONDS": 5.0, "SETTLED": 1, "WORK_SECONDS": 0.1, "SIDE": 256}
    for name, value in short.items():  # a loaded machine makes few readings
        monkeypatch.setattr(sensors, name, value)
    found = sensors.measure(setting)
    power = [row for row in found["rows"] if row["what"] == "power, at work"]
    assert [(row["found"], row["expected"]) for row in power] == [(fake.WATTS, watts)]
    assert [fault for fault in found["faults"] if fault.startswith("power")] == (
        [f"power_watts, at work: {fake.WATTS:.4g} here, {watts:.4g} by the vendor's tool"] * faults
    )
    assert f"-i {fake.UUID}\n" in (tmp_path / "asked").read_text()
    assert len(found["readings"]["at_work"]) > sensors.SETTLED
    assert len(page(Measured(tmp_path, {}, {}, {"sensors": part(found)})).splitlines()) > 15


def part(found: Figures) -> dict[str, object]:
    """As it stands in the JSON."""
    return {"state": "done", "began": "", "seconds": 1.0, "figures": found, "error": ""}
