"""Devices that a driver's tool lists: found by tools as they answer, and never waited for long."""

from __future__ import annotations

import errno
import runpy
import shutil
import time
from pathlib import Path

import pytest

from aiperf.errors import UnseenDevices
from aiperf.hardware import host_accelerators
from aiperf.hardware.host_accelerators import TOOLS, refuse_unseen
from tests.house.tree import ROOT
from tests.launch.stand_ins import install
from tests.tables import ComesTo

ANSWERS = Path(__file__).with_name("answers")
"""In the form that these tools are known to print; no manual was checked."""
NOTHING = "echo 'No devices were found'; exit 6"


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of tools, before those of this machine, where a vendor's own would answer, too; and a host
    without any device."""
    for tool in TOOLS:
        script(tmp_path / "bin", tool, NOTHING)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.setattr(host_accelerators, "ROOT", tmp_path / "root")
    return tmp_path / "bin"


def script(folder: Path, tool: str, text: str) -> None:
    install(folder, {tool: f"#!/bin/sh\n{text}\n"})


def host(folder: Path, *traces: str) -> None:
    """Writes the files of a host: modules as "nvidia", device files as "/dev/nvidia0", those of /dev/dri and
    devices of the PCI bus with vendor and class."""
    root = folder.parent / "root"
    for trace in traces:
        name, *numbers = trace.split()
        if numbers:
            device = root / "sys/bus/pci/devices" / name.rpartition("@")[2]
            device.mkdir(parents=True)
            for file, number in zip(("vendor", "class"), numbers):
                (device / file).write_text(f"0x{number}\n")
        if name.startswith("/dev/"):
            file = root / name[1:].partition("@")[0]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
            if numbers:
                (root / "sys/class/drm" / file.name).mkdir(parents=True)
                (root / "sys/class/drm" / file.name / "device").symlink_to(device)
        elif not numbers:
            (root / "sys/module" / name).mkdir(parents=True)


def listing(tool: str) -> str:
    """Answers the right question as the tool does."""
    words = " ".join(TOOLS[tool].words)
    return f"[ \"$*\" = '{words}' ] || exit 2\ncat '{ANSWERS / tool}.txt'"


MISMATCH = "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18"
NO_DRIVER = "couldn't communicate with the NVIDIA driver. Make sure that the latest one is installed"
NO_DRIVER = f'echo "NVIDIA-SMI has failed because it {NO_DRIVER}"; exit 9'
UNKNOWN = "echo 'Failed to initialize NVML: Unknown Error'; exit 255"
NO_AMD = "echo 'ERROR:root:Driver not initialized (amdgpu not found in modules)'"
LOADED = ["nvidia", "/dev/nvidia0", "0000:3b:00.0 10de 030200"]
MI250 = ["amdgpu", "/dev/kfd", "/dev/dri/renderD128@0000:c1:00.0 1002 038000"]
LAPTOP = ["amdgpu", "/dev/kfd", "/dev/dri/renderD128@0000:05:00.0 1002 030000", "i915"]
LAPTOP += ["/dev/dri/renderD129@0000:00:02.0 8086 030000"]
DCMI = "echo 'dcmi module initialize failed. ret is -8005'"
XPUM = "echo 'Error: XPUM Service Status Error'; exit 9"
TWO_ON_THE_BUS = ["0000:3b:00.0 10de 030000", "0001:1b:00.0 10de 030200", "0000:3b:00.1 10de 040300"]
MAX_1550 = ["xe", "/dev/dri/renderD128@0000:18:00.0 8086 038000"]
FAULT = "CUDA error 802: system not yet initialized"


def test_what_is_refused_and_what_is_noted_beside_a_processor_that_is_measured(
    tools: Path, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    def seen(tool: str, answer: str | None, *traces: str, fault: str = "", **environment: str) -> str:
        """What is said on a host where a tool answers so, or is not installed, and a runtime may fail."""
        shutil.rmtree(host_accelerators.ROOT, ignore_errors=True)
        host(tools, *traces)
        with monkeypatch.context() as patched:
            if answer is None:
                patched.setenv("PATH", str(tools / "none"))
            else:
                script(tools, tool, answer)
            try:
                found = refuse_unseen("2.13.0", environment, {"NVIDIA": fault} if fault else {})
            except UnseenDevices as error:
                found = f"refused: {error}"
        script(tools, tool, NOTHING)
        return found.replace(str(host_accelerators.ROOT), "")

    def opened(number: int, *traces: str) -> str:
        """A job is denied device files by its control group, which no file's permissions show."""
        with monkeypatch.context() as patched:
            print_it = f"import sys\nfor path in sys.argv[1:]: print({number})"
            patched.setattr(host_accelerators, "OPEN", print_it)
            return seen("nvidia-smi", NOTHING, *traces)

    assert {path.stem for path in ANSWERS.iterdir()} == TOOLS.keys()
    comes_to_what_was_read("unseen_devices.txt", {**globals(), **vars(errno), "seen": seen, "opened": opened})


def test_a_tool_that_hangs_is_not_waited_for(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its child holds the output open, and outlives it."""
    monkeypatch.setattr(host_accelerators, "TOOL_SECONDS", 0.5)
    script(tools, "nvidia-smi", "sleep 60\necho never")
    began = time.monotonic()
    with pytest.raises(UnseenDevices) as refusal:
        refuse_unseen("2.13.0+cpu", {}, {})
    assert time.monotonic() - began < 10
    assert str(refusal.value) == (
        "torch 2.13.0+cpu sees no device, and nvidia-smi gives no answer in 0.5 s; have the driver checked, "
        "or use the processor with --device cpu"
    )


def test_make_asks_the_same_questions() -> None:
    probes = runpy.run_path(str(ROOT / ".ci" / "choose_torch.py"))["PROBES"].values()
    assert {tool: how.words for tool, how in TOOLS.items()} == {
        tool: tuple(words) for commands in probes for tool, *words in commands
    }
