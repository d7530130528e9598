"""Which torch is installed follows from the accelerator and the index, and is said beforehand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT

SCRIPT = ROOT / ".ci/choose_torch.py"


class Machine:
    """A folder of programs that stands for a machine: vendors' tools, and a Python whose pip has an index."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.offers()

    def has(self, program: str, prints: str, code: int = 0) -> None:
        self._write(program, f"#!/bin/sh\nprintf '%s' '{prints}'\nexit {code}\n")

    def offers(self, *builds: str) -> None:
        """Its index has these builds, of two megabytes each."""
        wheel = self.folder / "torch.whl"
        wheel.write_bytes(bytes(2_000_000))
        report = json.dumps({"install": [{"download_info": {"url": wheel.as_uri()}}]})
        cases = "".join(f"  *'{build}') printf '%s' '{report}'; exit 0;;\n" for build in builds)
        told = "echo 'ERROR: No matching distribution found' >&2; exit 1"
        self._write("python", f'#!/bin/sh\ncase "$*" in\n{cases}  *) {told};;\nesac\n')

    def torch_fails(self) -> None:
        """Its torch sees no device."""
        self._write("python", "#!/bin/sh\necho 2.13.0+cpu >&2; exit 1\n")

    def choose(self, *arguments: str, accelerator: str = "") -> subprocess.CompletedProcess[str]:
        environment = {"PATH": str(self.folder), "ACCELERATOR": accelerator}
        command = [sys.executable, str(SCRIPT), *(arguments or [str(self.folder / "python")])]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)

    def _write(self, program: str, script: str) -> None:
        (self.folder / program).write_text(script)
        (self.folder / program).chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_an_accelerator_the_cpu_build_is_taken_where_there_is_one(machine: Machine) -> None:
    machine.offers("torch==2.13.0+cpu")
    answer = machine.choose()
    assert answer.stdout == "torch==2.13.0+cpu\n"
    assert answer.stderr == "accelerator: none; torch 2.13.0: its CPU build, 2 MB\n"


def test_without_a_cpu_build_the_size_of_the_default_build_is_said(machine: Machine) -> None:
    answer = machine.choose()
    assert answer.stdout == "torch==2.13.0\n"
    assert "no CPU build for this Python, so the default build, " in answer.stderr
    assert "MB; to avoid it" in answer.stderr or "not known beforehand; to avoid it" in answer.stderr


def test_a_device_takes_any_build_but_the_one_without_devices(machine: Machine) -> None:
    machine.offers("torch==2.13.0+cpu")
    machine.has("nvidia-smi", "GPU 0: NVIDIA H100")
    answer = machine.choose()
    assert answer.stdout == "torch==2.13.0,!=2.13.0+cpu\n"
    assert answer.stderr.startswith("accelerator: nvidia; torch 2.13.0: its build for this device, ")


@pytest.mark.parametrize(("prints", "code"), [("", 0), ("No devices were found", 6)])
def test_a_tool_without_a_device_is_no_accelerator(machine: Machine, prints: str, code: int) -> None:
    machine.has("nvidia-smi", prints, code)
    assert "accelerator: none" in machine.choose().stderr


def test_what_is_found_can_be_overridden(machine: Machine) -> None:
    machine.has("nvidia-smi", "GPU 0: NVIDIA H100")
    assert "accelerator: none" in machine.choose(accelerator="none").stderr
    wrong = machine.choose(accelerator="gpu")
    assert wrong.stderr == "ACCELERATOR is 'gpu'; it is one of nvidia, rocm, npu, xpu, none\n"
    assert wrong.returncode == 1


def test_a_device_that_the_default_index_has_no_build_for_needs_another_index(machine: Machine) -> None:
    machine.has("rocm-smi", "GPU[0] : 0x740f")
    assert "PIP_ARGS='--extra-index-url" in machine.choose().stderr
    given = machine.choose(str(machine.folder / "python"), "--extra-index-url", "file:///rocm")
    assert given.stdout == "torch==2.13.0,!=2.13.0+cpu\n"


def test_an_npu_stands_beside_the_cpu_build(machine: Machine) -> None:
    machine.offers("torch==2.13.0+cpu")
    machine.has("npu-smi", "Total Count : 8")
    assert machine.choose().stdout == "torch==2.13.0+cpu\n"


def test_a_torch_that_does_not_see_the_device_is_refused(machine: Machine) -> None:
    machine.has("nvidia-smi", "GPU 0: NVIDIA H100")
    machine.torch_fails()
    answer = machine.choose("--verify", str(machine.folder / "python"))
    assert answer.returncode == 1
    assert "but torch 2.13.0+cpu does not see it; give an index" in answer.stderr
    assert machine.choose("--verify", str(machine.folder / "python"), accelerator="none").returncode == 0


def test_the_size_that_is_said_is_that_of_the_pinned_version() -> None:
    pin = next(
        line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch==")
    )
    assert f'("{pin.removeprefix("torch==")}", "Linux", "x86_64")' in SCRIPT.read_text(encoding="utf-8")
