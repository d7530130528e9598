"""Devices that a driver's tool lists: found by tools as they answer, and never waited for long."""

from __future__ import annotations

import runpy
import time
from pathlib import Path

import pytest

from aiperf.errors import UnseenDevices
from aiperf.hardware import unseen
from aiperf.hardware.unseen import LISTED_BY, refuse_unseen
from aiperf.programs import ToolFailed, ask
from tests.house.tree import ROOT

# In the form that their tools are known to print; no manual was checked.
ANSWERS = {
    "nvidia-smi": "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-5a)\n  MIG 1g.10gb Device 0: (UUID: MIG-8f)\n"
    "GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-6b)\n",
    "rocm-smi": "GPU[0]\t\t: Device Name: \t\tAMD Instinct MI250X\nGPU[0]\t\t: Device ID: \t\t0x7408\n"
    "GPU[1]\t\t: Device Name: \t\tAMD Instinct MI250X\nGPU[1]\t\t: Device ID: \t\t0x7408\n",
    "npu-smi": "\tTotal Count                    : 2\n"
    "\n\tNPU ID                         : 0\n\tChip Count                     : 1\n"
    "\n\tNPU ID                         : 1\n\tChip Count                     : 1\n",
    "xpu-smi": "| Device ID | Device Information   |\n| 0         | Device Name: Max 1550 |\n"
    "|           | Vendor Name: Intel(R) |\n| 1         | Device Name: Max 1550 |\n",
}


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of tools, before those of this machine; a vendor's tool of its own would answer, too."""
    for tool in LISTED_BY:
        script(tmp_path, tool, "exit 9")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


def script(folder: Path, tool: str, text: str) -> None:
    file = folder / tool
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


@pytest.mark.parametrize("tool", LISTED_BY)
def test_listed_devices_that_torch_does_not_see_are_refused(tool: str, tools: Path) -> None:
    words = " ".join(LISTED_BY[tool].words)
    script(tools, tool, f"[ \"$*\" = '{words}' ] || exit 2\ncat <<'END'\n{ANSWERS[tool]}END")
    with pytest.raises(UnseenDevices) as refusal:
        refuse_unseen("2.13.0+cpu", {})
    assert str(refusal.value) == (
        f"{tool} lists 2 devices, torch 2.13.0+cpu sees none; install the matching build of torch, or use "
        f"the processor with --device cpu"
    )


@pytest.mark.parametrize(
    "answer",
    [
        "echo 'No devices were found'; exit 6",
        "echo 'No devices were found'",
        'echo "NVIDIA-SMI has failed because it couldn\'t communicate with the NVIDIA driver"; exit 9',
    ],
)
def test_a_tool_that_lists_no_device_is_no_fault_nor_is_no_tool(
    answer: str, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a login node, and in a job that was given none."""
    script(tools, "nvidia-smi", answer)
    refuse_unseen("2.13.0+cpu", {})
    monkeypatch.setenv("PATH", str(tools / "none"))
    refuse_unseen("2.13.0+cpu", {})


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
        refuse_unseen("2.13.0+cpu", {variable: value})
        return
    with pytest.raises(UnseenDevices, match="nvidia-smi lists 1 device, "):
        refuse_unseen("2.13.0+cpu", {variable: value})


def test_a_tool_that_hangs_is_not_waited_for(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its child holds the output open, and outlives it."""
    monkeypatch.setattr(unseen, "TOOL_SECONDS", 0.5)
    script(tools, "nvidia-smi", "sleep 60\necho never")
    began = time.monotonic()
    with pytest.raises(UnseenDevices) as refusal:
        refuse_unseen("2.13.0+cpu", {})
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
    assert {tool: listing.words for tool, listing in LISTED_BY.items()} == {
        tool: tuple(words) for tool, *words in probes
    }
