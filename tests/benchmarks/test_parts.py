"""The parts of benchmarks/device.py on a processor, at sizes of seconds, and what no processor can show."""

from __future__ import annotations

import mmap
import os
import sys
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from time import monotonic
from types import SimpleNamespace

import numpy as np
import pytest

from aiperf.config import Config, load_preset
from aiperf.device import Device
from aiperf.device.cpu import Cpu
from aiperf.engines.graphed import Graphed
from aiperf.engines.registry import KINDS
from aiperf.pretending.assumptions import assumed
from aiperf.proposing.memory_model import graph_bytes, step_parts
from benchmarks.on_device import (
    ceilings,
    control,
    counting,
    engines,
    loops,
    machine,
    memory,
    number_formats,
    runs,
    scatter,
    sensors,
    suite,
)
from benchmarks.on_device.page import page
from benchmarks.on_device.parts import Setting
from benchmarks.on_device.sensors import Reading, _compared, joules, of_amd, of_nvidia
from benchmarks.on_device.state import Measured
from benchmarks.scatter import Timed, children
from nas.seeds import residual
from tests.aiperf.telemetry.fakes import pynvml as fake

# nvidia-smi --query-gpu=power.draw,clocks.sm,clocks.mem,temperature.gpu,utilization.gpu,memory.used
LINE = {
    "652.31, 1980, 3201, 61, 100, 70123\n": {
        "power_watts": 652.31,
        "clock_hertz": 1980e6,
        "memory_clock_hertz": 3201e6,
        "temperature_celsius": 61.0,
        "utilisation": 1.0,
        "memory_bytes": 70123 * 2**20,
    },
    "[N/A], 1980, [N/A], [N/A], [Not Supported], 1\n": {"clock_hertz": 1980e6, "memory_bytes": 2**20},
    "": {},
}
RADEON = (
    '{"card0": {"Temperature (Sensor junction) (C)": "54.0", "Temperature (Sensor memory) (C)": "40.0",'
    ' "Current Socket Graphics Package Power (W)": "143.0"}}'
)


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting("cpu", tmp_path, 6.0)


def test_vendors_tools_are_read() -> None:
    assert {line: of_nvidia(line) for line in LINE} == LINE
    assert (of_amd(RADEON), of_amd("")) == ({"power_watts": 143.0, "temperature_celsius": 54.0}, {})
    assert of_amd('{"gpu1": {"Average Graphics Package Power (W)": "N/A (Secondary die)"}}') == {}


def test_a_sensor_that_differs_from_the_tool_is_a_fault() -> None:
    """Energy is compared with power and time."""

    def readings(own_watts: float, told_watts: float) -> list[Reading]:
        own = [{"power_watts": own_watts, "energy_joules": 1000 + own_watts * at} for at in range(11)]
        return [Reading(float(at), each, {"power_watts": told_watts}) for at, each in enumerate(own)]

    assert joules(readings(300.0, 310.0)) == pytest.approx((3000.0, 3100.0))
    assert joules(readings(300.0, 310.0)[:1]) == (None, None)
    idle = readings(60.0, 60.0)
    assert _compared(idle, readings(300.0, 310.0), "nvidia-smi")[1] == []
    assert _compared(idle, readings(300.0, 600.0), "nvidia-smi")[1] == [
        "power_watts, at work: 300 here, 600 by the vendor's tool",
        "energy_joules, of the work: 3000 here, 6000 by the vendor's tool",
    ]


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
    """NVML, nvidia-smi and the clock are stand-ins; work, readings and comparison are real."""
    tool = tmp_path / "nvidia-smi"
    clock = fake.nvmlDeviceGetClockInfo(None, fake.NVML_CLOCK_SM)
    tool.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/asked\necho "{watts}, {clock}, 1, 61, 87, 102400"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(sensors, "bind", lambda kind, index: WithSensors(0, "A device", 8 << 30))
    # Each look advances the clock, so that a busy machine makes as many readings. It is far ahead, so the
    # sensor has all the time to answer.
    ticks, began = count(), monotonic() + 3600
    monkeypatch.setattr(sensors, "monotonic", lambda: began + next(ticks) / 4)
    monkeypatch.setattr(sensors, "sleep", lambda seconds: None)
    for name, value in {"WORK_SECONDS": 0.01, "SIDE": 256, "SETTLED": 1, "LOAD_SECONDS": 10.0}.items():
        monkeypatch.setattr(sensors, name, value)
    found = sensors.measure(setting)
    power = [row for row in found["rows"] if row["what"] == "power, at work"]
    assert [(row["found"], row["expected"]) for row in power] == [(fake.WATTS, watts)]
    assert [fault for fault in found["faults"] if fault.startswith("power")] == (
        [f"power_watts, at work: {fake.WATTS:.4g} here, {watts:.4g} by the vendor's tool"] * faults
    )
    assert f"-i {fake.UUID}\n" in (tmp_path / "asked").read_text()
    assert len(found["readings"]["at_work"]) > sensors.SETTLED
    part = {"state": "done", "began": "", "seconds": 1.0, "figures": found, "error": ""}
    assert len(page(Measured(tmp_path, {}, {}, {"sensors": part})).splitlines()) > 15


def test_a_machine_that_has_what_a_run_needs(setting: Setting) -> None:
    found = machine.measure(setting)
    assert (found["faults"], found["rows"][0]["found"]) == ([], 1)


def test_rates_of_grown_networks_stand_beside_what_simulations_assume(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These rates are stated; test_the_page_of_scaling_has_the_rows_of_grown_networks measures them."""

    def stated(config: Config, device: Device, count: int, seconds: float, say: object) -> Timed:
        networks, rates = children(config, count), np.arange(1.0, count + 2)
        return Timed(networks, config.training.batch_size, 1 / rates, np.ones(count))

    monkeypatch.setattr(scatter, "timed", stated)
    found = scatter.measure(setting)
    rows = {row["what"]: row for row in found["rows"]}
    assert rows["children, generations"]["found"].startswith(f"{scatter.SMALL_CHILDREN}, ")
    assert rows["spread.network"]["expected"] == assumed("laptop").spread.network
    assert rows["spread.network"]["found"] > 0
    assert len(found["seconds"]) == 1 + scatter.SMALL_CHILDREN


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


def test_conversions_of_layout_are_found_among_the_kernels() -> None:
    """By names as profilers print them."""
    converting = (
        "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true, (cudnnKernelDataType_t)0>",
        "void cudnn::ops::nhwcToNchwKernel<__nv_bfloat16, __nv_bfloat16, float, true, false>",
        "batched_transpose_32x32_half",
        "TransData",
    )
    others = {
        "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64": 3.0,
        "void at::native::batch_norm_collect_statistics_channels_last_kernel<Welford>": 3.0,
    }
    assert counting.conversion_share(others) == 0
    assert counting.conversion_share(others | dict.fromkeys(converting, 0.5)) == 0.25


def test_memory_is_seen() -> None:
    watch = memory._Watch()
    with mmap.mmap(-1, 64 << 20) as block:  # fresh from the system: malloc may still have some
        for _ in range(64):
            block.write(b"x" * (1 << 20))
        assert 0.9 * len(block) < watch.end() < 2 * len(block)


def test_every_captured_step_is_expected_to_keep_a_graph() -> None:
    """By the classes of the engines, not by the names that the memory model has."""
    training = replace(load_preset("digits").training, format="fp32")
    eager = sum(step_parts(residual(), training, 100, 1, "cuda").values())
    graph = graph_bytes(residual(), training, 100, 1)
    for name, kind in KINDS.items():
        expected = eager + (graph if issubclass(kind, Graphed) else 0)
        assert memory.modelled(residual(), training, 100, "cuda", name) == expected, name


def test_engines_make_the_eager_step(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "resnet18", lambda input, classes: residual(input, classes))
    found = engines.measure(setting)
    states = {row["what"].split(":")[0]: row["found"].split(",")[0].split(":")[0] for row in found["rows"]}
    captured = dict.fromkeys(("graphed", "fused-graphed"), "cannot be used")
    assert (found["faults"], states) == ([], captured | {"fused": "same"})


def test_the_eager_step_is_beside_the_rate_of_pytorch_and_the_best_beside_others() -> None:
    """A fast fused step does not hide a slow eager one."""
    medians = {"eager": 4000.0, "fused": 5000.0, "graphed": 4500.0, "fused-graphed": 5400.0}
    rows, slow = control.beside(medians, control.H200, is_judged=True)
    assert [(row["what"], row["by"], row["found"]) for row in rows[:2]] == [
        ("eager beside", "milabench, H200", 4000.0),
        ("fused-graphed beside", "MLPerf 4.0, H200 of 8", 5400.0),
    ]
    assert slow == ["eager reaches 0.82 of what milabench, H200 published"]
    for enough, device, is_judged in (
        (4900.0, control.H200, True),
        (1.0, control.H200, False),
        (1.0, "", True),
    ):
        assert control.beside({**medians, "eager": enough}, device, is_judged)[1] == []


def test_the_best_fused_step_has_a_goal() -> None:
    medians = {"eager": 4000.0, "fused": 5000.0, "graphed": 9000.0, "fused-graphed": 5400.0}
    (row,), slow = control.gain_of_fusing(medians, is_judged=True)
    assert (row["found"], row["expected"], slow) == (
        1.35,
        1.4,
        ["fused steps reach 1.35 times the rate of eager ones; goal: 1.4"],
    )
    assert control.gain_of_fusing(medians, is_judged=False)[1] == []
    assert control.gain_of_fusing({**medians, "fused": 5600.0}, is_judged=True)[1] == []
    assert control.gain_of_fusing({"eager": 1.0, "compiled": 1.0}, is_judged=True) == ([], [])


def test_the_batch_is_halved_until_all_engines_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is that of agreement.py, whatever library lacked the memory."""
    sizes = list[int]()

    def prepared(device: Device, graph: object, format: str, size: int, names: object) -> SimpleNamespace:
        sizes.append(size)
        reason = "OutOfMemoryError: CUDNN_STATUS_ALLOC_FAILED" if size > 64 else "another reason"
        return SimpleNamespace(engines={}, unusable={"graphed": reason})

    monkeypatch.setattr(control, "prepare", prepared)
    control.fitting(Cpu.bind(0), residual(), "fp32", 256, ["graphed"])
    assert sizes == [256, 128, 64]


@pytest.mark.slow
def test_the_control_and_the_memory_of_a_step_are_measured(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "SMALL_ROUND_SECONDS", 0.1)
    monkeypatch.setattr(control, "resnet50", lambda input, classes: residual((3, 32, 32), 10))
    monkeypatch.setattr(memory, "resnet18", lambda input: residual((3, 32, 32)))
    for part, what in ((control, "eager: tensor OPS"), (memory, "digits' seed, 400 images, eager")):
        found = part.measure(setting)
        (row,) = (each for each in found["rows"] if each["what"] == what)
        assert (found["faults"], row["ratio"] > 0) == ([], True)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.timeout(300)
def test_ceilings_a_run_and_its_overhead_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = Setting("cpu", tmp_path, 6.0)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(ceilings, "SMALL_SECONDS", 1.0)
    monkeypatch.setattr(loops, "SMALL_TRIALS", 1)
    monkeypatch.setattr(loops, "SMALL_SECONDS", 0.1)
    assert ceilings.measure(setting)["faults"] == []
    found = runs.measure(setting, "digits")
    assert (found["faults"], found["rows"][0]["found"]) == ([], "VALID, class smoke")
    assert loops.measure(setting, "digits-auto")["rows"][0]["found"] == 1


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.timeout(300)
def test_the_doctor_and_tests_are_started(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "ON_CPU", (*suite.ON_CPU, "--collect-only"))
    found = suite.measure(setting)
    doctor, tests = found["rows"]
    assert (found["faults"], doctor["found"]) == ([], "fit")
    assert "tests collected" in tests["found"]
