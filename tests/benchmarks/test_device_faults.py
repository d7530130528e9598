"""Parts of benchmarks/device.py that look for faults and slowness, on a processor and on stand-ins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from aiperf.device.cpu import Cpu
from aiperf.engines.engine import Engine
from aiperf.engines.registry import KINDS
from benchmarks.on_device import (
    choices,
    engines,
    group,
    inputs,
    meter,
    out_of_memory,
    places,
    replays,
    unfused,
)
from benchmarks.on_device.out_of_memory import Waiting
from benchmarks.on_device.parts import Setting
from benchmarks.on_device.rows import Use
from nas.seeds import residual
from tests.aiperf.engines.recording import Again, recording

MADE = ("it was captured", "a capture that must fail was made")


def test_what_an_optimizer_cannot_use_is_a_fault(setting: Setting, put: Callable[..., None]) -> None:
    """Captured steps whose gradients have other strides, or other numbers, after they were checked."""
    device, case = recording(), engines.Case("seed", residual(), "fp32", 4)
    put(engines, bind=lambda kind, index: device, _cases=lambda *_: [case])
    put(engines, prepare_and_check=lambda kind, eager, *_: (kind(eager.passes), ""))

    def measured(changed: Callable[[Tensor], Tensor]) -> list[str]:
        class Changing(Engine):
            name = "graphed"

            def step(self, examples: Tensor, labels: Tensor) -> Tensor:
                loss = super().step(examples, labels)
                for parameter in self.passes.network.parameters():
                    assert parameter.grad is not None
                    parameter.grad = changed(parameter.grad)
                return loss

        put(engines, KINDS={"graphed": Changing})
        faults: list[str] = [*engines.measure(setting, "graphed")][-1]["faults"]
        return faults

    assert measured(lambda gradient: gradient) == []
    (fault,) = measured(lambda gradient: gradient.clone(memory_format=torch.contiguous_format))
    assert fault.endswith("has not the strides of its parameter")
    (fault,) = measured(lambda gradient: -gradient)
    assert fault.endswith("it learns something else: 2 of the movement")


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.timeout(300)
def test_a_group_of_one_rank_makes_its_steps_and_several_fall_back_together(
    setting: Setting, put: Callable[..., None]
) -> None:
    """Two ranks, of which one cannot prepare an engine; and a device that has no second one."""
    put(group, KINDS={"eager": KINDS["eager"]}, SMALL_SECONDS=0.01)
    found = group.measure(setting, "all")
    rows = {row["what"]: row for row in found["rows"]}
    assert (found["faults"], rows["ranks"]["found"], rows["backend"]["found"]) == ([], 2, "gloo")
    assert rows["one rank fails: the ranks"]["found"].split("; ") == [
        "on another rank of its group",
        f"RuntimeError: {group.FAILS}",
    ]
    assert rows["eager: rate"]["ratio"] > 0
    assert rows["the group was left in"]["found"] < 10
    put(group, bind=lambda kind, index: Cpu.bind(0), count_devices=lambda kind: 1)
    alone = group.measure(Setting("cuda", setting.folder, 6.0), "all")
    assert alone["left_out"] == "a group of several ranks needs two devices, and 1 is visible"


def test_a_rank_that_hangs_is_a_fault(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "SMALL_MOST_SECONDS", 0.0)
    found, faults = group._trained(setting, 1, ["eager"])
    assert (found, faults) == ([], ["rank 0 is not over after 0 s; see the part's log"])


def test_memory_that_grows_is_a_fault(setting: Setting, put: Callable[..., None]) -> None:
    """Captured steps and trials, with a driver that reports more memory from time to time."""
    put(replays, SMALL_STEPS=20, SMALL_TRIALS=4, STEPS_OF_TRIAL=1, BATCH=4, MOST_GROWTH=8)
    held = iter([*range(10), *(9 * step for step in range(10)), *(100 << 20 << step for step in range(4))])
    put(replays, bind=lambda kind, index: recording(), held_bytes=lambda device: next(held))
    put(Setting, is_small=False, sized=lambda self, full, small: small)
    *_, found = replays.measure(setting)
    assert found["faults"] == [
        "memory grew by 0 MiB over the fused-graphed steps",
        "memory grew by 400 MiB over the trials",
    ]
    assert found["steps"].keys() == {"graphed", "fused-graphed"}


def test_a_lack_of_memory_is_known_and_a_smaller_step_is_made(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    *_, found = out_of_memory.measure(setting)
    assert (found["faults"], "can't allocate memory" in found["rows"][0]["found"]) == ([], True)
    monkeypatch.setattr(out_of_memory, "is_out_of_memory", lambda error: False)
    (fault,) = [*out_of_memory.measure(setting)][-1]["faults"]
    assert fault.startswith("eager step: not known as a lack of memory: RuntimeError: ")


def test_a_lack_of_memory_in_a_capture_and_in_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Captures that do their work again; a library that reports the lack in words that nobody knows."""
    device = recording()
    monkeypatch.setattr(out_of_memory, "BATCH", 4)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert out_of_memory._captured(out_of_memory.Greedy, device) == MADE
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    said, fault = out_of_memory._captured(out_of_memory.Greedy, device)
    assert ("can't allocate memory" in said, fault) == (True, "")

    monkeypatch.setattr(out_of_memory, "CONVOLVED", (1, 8, 8))
    monkeypatch.setattr(out_of_memory, "_all_but", lambda device, bytes_left: [])
    assert out_of_memory._convolved(device) == ("it fits", "")

    def convolved(*_: Tensor, padding: int) -> Tensor:
        raise RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED")

    monkeypatch.setattr(out_of_memory, "conv2d", convolved)
    unknown = "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_SUPPORTED"
    expected = (unknown, f"with 0 MiB left, not known as a lack of memory: {unknown}")
    assert out_of_memory._convolved(device) == expected


def test_what_does_not_work_after_an_invalid_capture_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor waits unharmed; the device that does not is a stand-in, whose random numbers stay lost."""
    device = recording()
    monkeypatch.setattr(out_of_memory, "BATCH", 4)
    assert out_of_memory._captured(Waiting, device) == MADE
    assert out_of_memory._captured(Waiting, Cpu.bind(0))[0].startswith("not tried: ")
    record = Again.record

    def recorded(self: Again, work: Callable[[], None]) -> None:
        if work.__func__ is Waiting._alone:  # type: ignore[attr-defined]
            raise RuntimeError("operation not permitted when stream is capturing")
        record(self, work)

    monkeypatch.setattr(Again, "record", recorded)
    reason = "RuntimeError: operation not permitted when stream is capturing"
    assert out_of_memory._captured(Waiting, device) == (reason, "")
    monkeypatch.setattr(torch, "rand", lambda *_, **__: 1 / 0)
    expected = (reason, "no random number after it: ZeroDivisionError: division by zero")
    assert out_of_memory._captured(Waiting, device) == expected
    monkeypatch.setattr(Again, "record", lambda self, work: 1 / 0)
    assert out_of_memory._captured(Waiting, device)[1].endswith(
        "; no capture after it: ZeroDivisionError: division by zero"
    )


def test_memory_is_taken_but_for_what_is_to_be_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that are never touched stand for the memory of a device."""
    taken, empty, total = list[int](), torch.empty, (3 << 30) + (5 << 20)

    def allocate(size: int, **words: Any) -> Tensor:
        if size > 1 << 29:  # memory in pieces
            raise torch.OutOfMemoryError
        taken.append(size)
        return empty(size, **words)

    monkeypatch.setattr(torch, "empty", allocate)
    monkeypatch.setattr(torch.cpu, "mem_get_info", lambda index: (total - sum(taken), total), raising=False)
    out_of_memory._all_but(Cpu.bind(0), 1 << 20)
    assert total - sum(taken) == 1 << 20


def test_choices_and_sizes_of_the_batch_are_timed(setting: Setting, put: Callable[..., None]) -> None:
    seed = residual((3, 16, 16), 10)
    put(choices, resnet50=lambda input, classes: seed, SMALL_SIDE=16, SMALL_SECONDS=0.02)
    *_, found = choices.measure(setting)
    named = [row["what"] for row in found["rows"]]
    assert named == [choices.CHOICE, "in fp32", "contiguous images and weights"]
    assert all(row["ratio"] > 0 for row in found["rows"])
    *_, sizes = choices.measure_sizes(setting)
    assert [row["what"] for row in sizes["rows"]] == [
        f"{size} images, {engine}" for size in (2, 4) for engine in ("eager", "fused")
    ]


def test_what_fused_steps_leave_to_torch_is_timed_beside_another_way(setting: Setting) -> None:
    found = unfused.measure(setting)
    compared = {row["what"]: row["by"] for row in found["rows"]}
    assert compared == {
        "first convolution, 3 channels": "",
        "first convolution, 4 channels": "first convolution, 3 channels",
        "first convolution, 8 channels": "first convolution, 3 channels",
        "casts of weights": "",
        "casts of weights, one call": "casts of weights",
        "normalisation and cast": "",
        "bytes copied to 16 bits": "normalisation and cast",
    }
    assert all(row["found"] > 0 for row in found["rows"])
    assert not found["faults"]


def test_images_that_a_device_normalises_otherwise_are_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.arange(256).repeat(6).to(torch.uint8).view(2, 16, 16, 3)
    assert unfused.wrongly_normalised(images) == []
    monkeypatch.setattr(unfused, "in_one_pass", lambda pixels, scale, shift: pixels * scale + shift + 1e-3)
    (fault,) = unfused.wrongly_normalised(images)
    assert fault == "bytes are normalised to numbers that differ by 0.001"


@pytest.mark.slow
def test_trials_read_jpeg_and_packed_images(setting: Setting) -> None:
    *_, found = inputs.measure(setting)
    rates = {row["what"]: row["found"] for row in found["rows"]}
    assert list(rates) == ["generated", "packed", "JPEG files"]
    assert min(rates.values()) > 0
    assert not (setting.folder / "images").exists()
    inputs._write(setting.folder, 1)
    assert all(9e4 < path.stat().st_size < 13e4 for path in setting.folder.rglob("*.jpg"))


def test_the_same_work_elsewhere_is_compared_with_what_was_named(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a processor there is no other device; a second process stands for one, and for a wrong one."""
    monkeypatch.setattr(places, "BATCH", 4)
    monkeypatch.setattr(places, "STEPS", 2)
    assert [row["found"] for row in [*places.measure(setting)][-1]["rows"]][1:] == [
        "left out: 1 cpu device is visible",
        "left out: cpu devices are not chosen by a UUID",
        "left out: there is no nvidia-smi to list slices",
    ]
    monkeypatch.setattr(torch.version, "hip", "7.0")
    assert isinstance(places._by_uuid("cuda", "36"), str)
    monkeypatch.setenv(places.VISIBLE, "3,1")
    monkeypatch.setattr(places, "TIMEOUT_SECONDS", 0.01)
    assert places._elsewhere(setting, "device 1", 0, {}) == ("failed", ["it is not over after 0 s"])
    monkeypatch.setattr(places.shutil, "which", lambda name: name)
    monkeypatch.setattr(places.subprocess, "run", lambda command, **_: SimpleNamespace(stdout=command[2]))
    assert places._bytes_of_first() == 3 << 20
    told = iter([1 << 30, (1 << 30) + (300 << 20)])
    monkeypatch.setattr(places, "_bytes_of_first", lambda: next(told))
    answer = '{"told": "T", "faults": [], "identity": "UUID-1", "first_bytes": 1500000000}'

    def ran(command: Sequence[str], **_: object) -> SimpleNamespace:
        Path(command[-1]).write_text(answer)
        return SimpleNamespace(returncode=0, stdout="", stderr="")

    monkeypatch.setattr(places.subprocess, "run", ran)
    said, reasons = places._elsewhere(setting, "device 1", 1, {places.VISIBLE: "GPU-UUID-2"})
    assert said == "T"
    assert reasons == ["the device is UUID-1, not UUID-2", "device 0 was touched: 407 MiB more there"]
    listed = "GPU 0: NVIDIA H100 (UUID: GPU-1)\n  MIG 1g.10gb Device 0: (UUID: MIG-2)\n"
    monkeypatch.setattr(places.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=listed))
    assert places._by_slice("cuda") == (0, {places.VISIBLE: "MIG-2"})


def test_the_meter_reads_the_counter_or_the_power(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is that at the end of the work."""
    metered = meter.Meter(Cpu.bind(0))
    counted = [{"energy_joules": 100, "clock_hertz": 1e9}, {"energy_joules": 900, "clock_hertz": 2e9}]
    readings = iter([*counted, {"power_watts": 1.0}, {"power_watts": 70.0}])
    monkeypatch.setattr(metered, "_read", lambda: next(readings))
    now = iter([0.0, 2.0, 5.0, 6.0])
    monkeypatch.setattr(meter, "monotonic", lambda: next(now))
    for name in ("counted", "read"):
        with metered.during(name):
            pass
    assert metered.use("counted") == Use(400.0, 2e9)
    assert metered.use("read") == Use(70.0, None)
    assert meter.Meter(Cpu.bind(0)).use("never") == Use(None, None)
