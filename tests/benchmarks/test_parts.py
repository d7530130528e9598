"""The parts of benchmarks/device.py on a processor, at sizes of seconds, and what no processor can show."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
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
from tests.house.tree import ROOT
from tests.tables import ComesTo


def test_vendors_tools_are_read(comes_to_what_was_read: ComesTo) -> None:
    """nvidia-smi by --query-gpu=power.draw,clocks.sm,clocks.mem,temperature.gpu,utilization.gpu,memory.used,
    and rocm-smi."""
    comes_to_what_was_read("tools.txt", {"of_nvidia": of_nvidia, "of_amd": of_amd})


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
    setting: Setting, monkeypatch: pytest.MonkeyPatch, put: Callable[..., None], watts: float, faults: int
) -> None:
    """NVML, nvidia-smi and the clock are stand-ins; work, readings and comparison are real."""
    folder, tool = setting.folder, setting.folder / "nvidia-smi"
    clock = fake.nvmlDeviceGetClockInfo(None, fake.NVML_CLOCK_SM)
    tool.write_text(f'#!/bin/sh\necho "$*" >> {folder}/asked\necho "{watts}, {clock}, 1, 61, 87, 102400"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    # Each look advances the clock, so that a busy machine makes as many readings. It is far ahead, so the
    # sensor has all the time to answer.
    ticks, began = count(), monotonic() + 3600
    put(sensors, monotonic=lambda: began + next(ticks) / 4, sleep=lambda seconds: None)
    put(sensors, bind=lambda kind, index: WithSensors(0, "A device", 8 << 30))
    put(sensors, WORK_SECONDS=0.01, SIDE=256, SETTLED=1, LOAD_SECONDS=10.0)
    found = sensors.measure(setting)
    power = [row for row in found["rows"] if row["what"] == "power, at work"]
    assert [(row["found"], row["expected"]) for row in power] == [(fake.WATTS, watts)]
    assert [fault for fault in found["faults"] if fault.startswith("power")] == (
        [f"power_watts, at work: {fake.WATTS:.4g} here, {watts:.4g} by the vendor's tool"] * faults
    )
    assert f"-i {fake.UUID}\n" in (folder / "asked").read_text()
    assert len(found["readings"]["at_work"]) > sensors.SETTLED
    put(sensors, ANSWER_SECONDS=0.01)
    assert sensors._answer(["sleep", "60"]) == ""
    part = {"state": "done", "began": "", "seconds": 1.0, "figures": found, "error": ""}
    assert len(page(Measured(folder, {}, {}, {"sensors": part})).splitlines()) > 15


def test_a_machine_that_has_what_a_run_needs(setting: Setting, put: Callable[..., None]) -> None:
    found = machine.measure(setting)
    assert (found["faults"], found["rows"][0]["found"]) == ([], 1)
    device, reasons = SimpleNamespace(kind="cuda", formats=("bf16",)), {"eager": "", "fused": "no triton"}
    put(machine, has_header=lambda: False)
    assert machine.unusable_here(device, reasons) == [
        "no fused steps: no triton",
        "no kernels of Triton: it needs gcc or clang, and Python.h",
    ]


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
    *_, found = number_formats.measure(setting)
    assert found["faults"] == []
    assert [row["found"] for row in found["rows"] if row["by"] == "declared"] == ["bf16"] * 2 + ["fp32"] * 2


def test_a_count_that_is_not_the_counters_is_a_fault(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counter's own formula for gradients, as if every convolution had only one gradient."""
    monkeypatch.setattr(counting, "resnet50", lambda input: residual())
    assert [*counting.measure(setting)][-1]["faults"] == []
    monkeypatch.setattr(counting, "_gradients", lambda grad, *rest, out_shape=None: 1)
    faults = [*counting.measure(setting)][-1]["faults"]
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
    both = others | dict.fromkeys(converting, 0.5)
    assert counting.kernel_faults(both, True) == ["25.0 % of the kernels' time converts layouts"]
    assert counting.kernel_faults(both, False) == []
    assert counting.kernel_faults({"cudaLaunchKernel": 0.0}, False) == ["the profiler recorded no kernel"]


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
    *_, found = engines.measure(setting, "fused")
    states = {row["found"].split(",")[0] for row in found["rows"]}
    assert (found["faults"], states) == ([], {"same"})
    (captured,) = engines.measure(setting, "graphed")
    assert captured["rows"][0]["found"].startswith("cannot be used: ")
    assert len(next(engines.measure(setting, "fused"))["rows"]) == 1, "before the next one"
    saved = setting.saved("engines-fused")
    saved.parent.mkdir()
    saved.write_text('{"is_whole": false}')
    assert engines.unused(Cpu.bind(0), setting)["fused"] == "the part engines-fused was cut off"


MEDIANS = {"eager": 4000.0, "fused": 5000.0, "graphed": 4500.0, "fused-graphed": 5400.0}
"""Images per second by engine."""


def beside(eager: float, device: str = control.H200, is_judged: bool = True) -> tuple[object, list[str]]:
    """The first figures that are shown next to others', and what is slow."""
    rows, slow = control.beside({**MEDIANS, "eager": eager}, device, is_judged)
    return [(row["what"], row["by"], row["found"]) for row in rows[:2]], slow


def gain(is_judged: bool = True, **medians: float) -> tuple[object, list[str]]:
    rows, slow = control.gain_of_fusing(medians, is_judged)
    return [(row["found"], row["expected"]) for row in rows], slow


def test_the_eager_step_is_beside_the_rate_of_pytorch_and_the_best_beside_others_and_has_a_goal(
    comes_to_what_was_read: ComesTo,
) -> None:
    """A fast fused step does not hide a slow eager one."""
    comes_to_what_was_read(
        "control_marks.txt", {"beside": beside, "gain": gain, "slower": control.slower_than_eager}
    )


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
    setting: Setting, put: Callable[..., None]
) -> None:
    put(control, SMALL_ROUND_SECONDS=0.1, resnet50=lambda input, classes: residual((3, 32, 32), 10))
    put(memory, resnet18=lambda input: residual((3, 32, 32)))
    for part, what in ((control, "eager: tensor OPS"), (memory, "digits' seed, 400 images, eager")):
        first, *_, found = part.measure(setting)
        assert "fused: rate" not in str(first)
        (row,) = (each for each in found["rows"] if each["what"] == what)
        assert (found["faults"], row["ratio"] > 0) == ([], True)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.timeout(300)
def test_ceilings_a_run_and_its_overhead_are_measured(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, put: Callable[..., None]
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    put(ceilings, SMALL_SECONDS=1.0)
    put(loops, SMALL_TRIALS=1, SMALL_SECONDS=0.1)
    assert ceilings.measure(setting)["faults"] == []
    found = runs.measure(setting, "digits")
    assert (found["faults"], found["rows"][0]["found"]) == ([], "VALID, class smoke")
    assert loops.measure(setting, "digits-auto")["rows"][0]["found"] == 1
    code, lines = runs.program(["no-such"], subprocess.STDOUT)
    assert (code, "'no-such'" in lines[-1]) == (2, True)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.timeout(300)
def test_the_doctor_and_tests_are_started(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    warning = setting.folder / "test_warning.py"
    warning.write_text("import warnings\ndef test_it(): warnings.warn('of a newer torch')\n")
    monkeypatch.setattr(suite, "ON_CPU", ("-c", str(ROOT / "pyproject.toml"), str(warning)))
    found = suite.measure(setting)
    doctor, tests = found["rows"]
    assert (found["faults"], doctor["found"]) == ([], "fit")
    assert "1 passed, 1 warning" in tests["found"]
