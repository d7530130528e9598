"""Devices that a driver's tool lists: found by tools as they answer, and never waited for long."""

from __future__ import annotations

import runpy
import time
from errno import EACCES, EIO, ENXIO, EPERM
from pathlib import Path

import pytest

from aiperf.errors import UnseenDevices
from aiperf.hardware import host_accelerators
from aiperf.hardware.host_accelerators import TOOLS, VENDORS, refuse_unseen
from aiperf.host.programs import ToolFailed, ask
from tests.house.tree import ROOT

# In the form that their tools are known to print; no manual was checked.
ANSWERS = {
    "nvidia-smi": "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-5a)\n  MIG 1g.10gb Device 0: (UUID: MIG-8f)\n"
    "GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-6b)\n",
    "rocm-smi": "GPU[0]\t\t: Device Name: \t\tAMD Instinct MI250X\nGPU[0]\t\t: Device ID: \t\t0x7408\n"
    "GPU[1]\t\t: Device Name: \t\tAMD Instinct MI250X\nGPU[1]\t\t: Device ID: \t\t0x7408\n",
    "amd-smi": "GPU: 0\n    BDF: 0000:c1:00.0\nGPU: 1\n    BDF: 0000:c6:00.0\n",
    "npu-smi": "\tTotal Count                    : 2\n"
    "\n\tNPU ID                         : 0\n\tChip Count                     : 1\n"
    "\n\tNPU ID                         : 1\n\tChip Count                     : 1\n",
    "xpu-smi": "| Device ID | Device Information   |\n| 0         | Device Name: Max 1550 |\n"
    "|           | Vendor Name: Intel(R) |\n| 1         | Device Name: Max 1550 |\n",
}


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of tools, before those of this machine, where a vendor's own would answer, too; and a host
    without any device."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        script(folder, tool, "echo 'No devices were found'; exit 6")
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setattr(host_accelerators, "ROOT", tmp_path / "root")
    return folder


def script(folder: Path, tool: str, text: str) -> None:
    file = folder / tool
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


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


@pytest.mark.parametrize("tool", TOOLS)
def test_listed_devices_that_torch_does_not_see_are_refused(tool: str, tools: Path) -> None:
    words = " ".join(TOOLS[tool].words)
    script(tools, tool, f"[ \"$*\" = '{words}' ] || exit 2\ncat <<'END'\n{ANSWERS[tool]}END")
    with pytest.raises(UnseenDevices) as refusal:
        refuse_unseen("2.13.0+cpu", {}, {})
    assert str(refusal.value) == (
        f"{tool} lists 2 devices, torch 2.13.0+cpu sees none; install the matching build of torch, or use "
        f"the processor with --device cpu"
    )


MISMATCH = "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18"
NO_DRIVER = "couldn't communicate with the NVIDIA driver. Make sure that the latest one is installed"
NO_DRIVER = f'echo "NVIDIA-SMI has failed because it {NO_DRIVER}"; exit 9'
SAYS_MISMATCH = "(exit code 18: Failed to initialize NVML: Driver/library version mismatch)"
SAYS_NO_DRIVER = "(exit code 9: NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver)"
UNKNOWN = "echo 'Failed to initialize NVML: Unknown Error'; exit 255"
NO_AMD = "echo 'ERROR:root:Driver not initialized (amdgpu not found in modules)'"
SAYS_NO_AMD = "(exit code 0: ERROR:root:Driver not initialized (amdgpu not found in modules))"
LOADED = ["nvidia", "/dev/nvidia0", "0000:3b:00.0 10de 030200"]
MI250 = ["amdgpu", "/dev/kfd", "/dev/dri/renderD128@0000:c1:00.0 1002 038000"]
LAPTOP = ["amdgpu", "/dev/kfd", "/dev/dri/renderD128@0000:05:00.0 1002 030000", "i915"]
LAPTOP += ["/dev/dri/renderD129@0000:00:02.0 8086 030000"]
DCMI = "echo 'dcmi module initialize failed. ret is -8005'"
XPUM = "echo 'Error: XPUM Service Status Error'; exit 9"
MAX_1550 = ["xe", "/dev/dri/renderD128@0000:18:00.0 8086 038000"]
REPAIR = "have the driver checked, or use the processor with --device cpu"


@pytest.mark.parametrize(
    ("tool", "answer", "traces", "told"),
    [
        ("nvidia-smi", MISMATCH, LOADED, SAYS_MISMATCH),
        ("nvidia-smi", MISMATCH, [], SAYS_MISMATCH),
        ("nvidia-smi", UNKNOWN, LOADED, "(exit code 255: Failed to initialize NVML: Unknown Error)"),
        ("nvidia-smi", NO_DRIVER, LOADED, SAYS_NO_DRIVER),
        ("nvidia-smi", "exit 139", ["/dev/nvidia0"], "(exit code 139: no reason given)"),
        ("rocm-smi", NO_AMD, MI250, SAYS_NO_AMD),
        ("amd-smi", "echo 'Unable to load'; exit 2", MI250, "(exit code 2: Unable to load)"),
        ("npu-smi", DCMI, ["/dev/davinci0"], "(exit code 0: dcmi module initialize failed)"),
        ("xpu-smi", XPUM, MAX_1550, "(exit code 9: Error: XPUM Service Status Error)"),
    ],
)
def test_a_loaded_driver_whose_tool_fails_is_refused(
    tool: str, answer: str, traces: list[str], told: str, tools: Path
) -> None:
    script(tools, tool, answer)
    host(tools, *traces)
    with pytest.raises(UnseenDevices) as refusal:
        refuse_unseen("2.13.0", {}, {})
    vendor = next(vendor.name for vendor in VENDORS if tool in vendor.tools)
    assert str(refusal.value) == f"the {vendor} driver is loaded, but {tool} fails {told}; {REPAIR}"


GIVEN_NONE = "driver is loaded, but none of its devices was given to this process"
CPU = "; the processor is measured"
ABSENT = f"not loaded{CPU}"
TWO_ON_THE_BUS = ["0000:3b:00.0 10de 030000", "0001:1b:00.0 10de 030200", "0000:3b:00.1 10de 040300"]
ON_THE_BUS = "a device of NVIDIA is on the PCI bus (0000:3b:00.0 and 1 more), but its driver"
NOT_LOADED, DENIED = "no driver of NVIDIA is loaded", "/dev/kfd: Permission denied"
NO_TOOL = "no nvidia-smi is installed, and torch finds no device of NVIDIA"
FAILS = "(nvidia-smi fails (exit code 3: no reason given))"
ASK = f"; ask the scheduler or the container for them if they are to be measured{CPU}"


@pytest.mark.parametrize(
    ("tool", "answer", "traces", "note"),
    [
        # a container, and a job, on a host whose devices were not given to it
        ("nvidia-smi", "", ["nvidia"], f"the NVIDIA {GIVEN_NONE}{ASK}"),
        ("nvidia-smi", None, LOADED[::2], f"the NVIDIA {GIVEN_NONE}{ASK}"),
        ("nvidia-smi", "exit 3", ["nvidia"], f"the NVIDIA {GIVEN_NONE} {FAILS}{ASK}"),
        ("rocm-smi", None, ["amdgpu", "0000:c1:00.0 1002 120000"], f"the AMD {GIVEN_NONE}{ASK}"),
        # no driver
        ("nvidia-smi", None, TWO_ON_THE_BUS, f"{ON_THE_BUS} is {ABSENT}"),
        ("nvidia-smi", NO_DRIVER, [], f"nvidia-smi fails {SAYS_NO_DRIVER}, and {NOT_LOADED}{CPU}"),
        ("xpu-smi", None, ["0000:00:02.0 8086 030000"], ""),
        ("npu-smi", None, ["0000:02:00.0 19e5 030000"], ""),
        # a driver that serves a laptop's graphics
        ("rocm-smi", None, LAPTOP, ""),
        # an installation without the tool
        ("nvidia-smi", None, LOADED, f"/dev/nvidia0 exists, but {NO_TOOL}{CPU}"),
        ("nvidia-smi", "", [], ""),
        ("nvidia-smi", "echo 'No devices were found'", [], ""),
    ],
)
def test_a_processor_is_measured_and_what_was_not_used_is_noted(
    tool: str, answer: str | None, traces: list[str], note: str, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if answer is None:
        monkeypatch.setenv("PATH", str(tools / "none"))
    else:
        script(tools, tool, answer)
    host(tools, *traces)
    assert refuse_unseen("2.13.0", {}, {}).replace(str(host_accelerators.ROOT), "") == note


@pytest.mark.parametrize(
    ("number", "traces", "told"),
    [
        (EPERM, LOADED, f"the NVIDIA {GIVEN_NONE} (/dev/nvidia0: Operation not permitted){ASK}"),
        (EACCES, MI250, f"torch 2.13.0 sees no device, and {DENIED}; {host_accelerators.PERMIT}"),
        (EIO, LOADED, f"the NVIDIA driver is loaded, but /dev/nvidia0: Input/output error; {REPAIR}"),
        (ENXIO, LOADED, f"/dev/nvidia0 exists, but nvidia-smi and torch find no device of NVIDIA{CPU}"),
    ],
)
def test_device_files_are_opened_to_see_whether_they_were_given(
    number: int, traces: list[str], told: str, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job is denied them by its control group, which no file's permissions show."""
    monkeypatch.setattr(host_accelerators, "OPEN", f"import sys\nfor path in sys.argv[1:]: print({number})")
    host(tools, *traces)
    try:
        found = refuse_unseen("2.13.0", {}, {})
    except UnseenDevices as error:
        found = str(error)
    assert found.replace(str(host_accelerators.ROOT), "") == told


def test_a_runtime_that_fails_is_refused_with_its_words(tools: Path) -> None:
    fault = {"NVIDIA": "CUDA error 802: system not yet initialized"}
    assert refuse_unseen("2.13.0", {}, fault) == ""
    host(tools, *LOADED)
    with pytest.raises(
        UnseenDevices, match=f"^the NVIDIA driver is loaded, but torch 2.13.0 fails: {fault['NVIDIA']}; "
    ):
        refuse_unseen("2.13.0", {}, fault)
    script(tools, "nvidia-smi", "echo 'GPU 0: NVIDIA H100'")
    with pytest.raises(UnseenDevices, match=f"lists 1 device, .* none: {fault['NVIDIA']}; {REPAIR}"):
        refuse_unseen("2.13.0", {}, fault)


@pytest.mark.parametrize(
    ("variable", "value", "hides"),
    [
        ("CUDA_VISIBLE_DEVICES", "", True),
        ("CUDA_VISIBLE_DEVICES", "-1", True),
        ("CUDA_VISIBLE_DEVICES", "NoDevFiles", True),
        ("CUDA_VISIBLE_DEVICES", "0,1", False),
        ("CUDA_VISIBLE_DEVICES", "GPU-5a", False),
        ("CUDA_VISIBLE_DEVICES", "MIG-8f", False),
        ("ZE_AFFINITY_MASK", "", False),
    ],
)
def test_a_variable_that_hides_all_devices_is_a_decision(
    variable: str, value: str, hides: bool, tools: Path
) -> None:
    script(tools, "nvidia-smi", "echo 'GPU 0: NVIDIA T4 (UUID: GPU-5a)'")
    if hides:
        assert refuse_unseen("2.13.0+cpu", {variable: value}, {}) == ""
        return
    with pytest.raises(UnseenDevices, match="nvidia-smi lists 1 device, "):
        refuse_unseen("2.13.0+cpu", {variable: value}, {})


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


def test_a_tool_that_cannot_be_started_is_told(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match=r"^cannot be started: No such file or directory$"):
        ask((str(tmp_path / "none"),), 1.0)


def test_make_asks_the_same_questions() -> None:
    probes = runpy.run_path(str(ROOT / ".ci" / "choose_torch.py"))["PROBES"].values()
    assert {tool: how.words for tool, how in TOOLS.items()} == {
        tool: tuple(words) for commands in probes for tool, *words in commands
    }
