"""Which torch is installed follows from the accelerator and the index, and is said beforehand."""

from __future__ import annotations

import json
import os
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

    def torch_says(self, *true: str) -> None:
        """Of what its torch is asked, only this is true."""
        cases = "".join(f"  *'if {each} else'*) exit 0;;\n" for each in true)
        self._write("python", f'#!/bin/sh\ncase "$*" in\n{cases}  *) echo 2.13.0+cpu >&2; exit 1;;\nesac\n')

    def choose(
        self, *arguments: str, accelerator: str = "", typed: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """`typed` at a terminal; None: there is no terminal."""
        environment = {"PATH": str(self.folder), "ACCELERATOR": accelerator}
        command = [sys.executable, str(SCRIPT), *(arguments or [str(self.folder / "python")])]
        person, terminal = os.openpty()
        os.write(person, f"{typed}\n".encode())
        try:
            return subprocess.run(
                command,
                stdin=subprocess.DEVNULL if typed is None else terminal,
                capture_output=True,
                text=True,
                env=environment,
                timeout=60,
            )
        finally:
            os.close(person)
            os.close(terminal)

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
    machine.torch_says("torch.version.cuda")
    answer = machine.choose("--verify", str(machine.folder / "python"))
    assert answer.returncode == 1
    assert "but torch 2.13.0+cpu does not see it; give an index" in answer.stderr
    assert machine.choose("--verify", str(machine.folder / "python"), accelerator="none").returncode == 0


def test_on_a_login_node_torch_is_built_for_devices_that_are_elsewhere(machine: Machine) -> None:
    machine.torch_says("torch.version.cuda")
    verify = ("--verify", str(machine.folder / "python"))
    assert machine.choose(*verify, accelerator="nvidia").returncode == 0
    answer = machine.choose(*verify, accelerator="rocm")
    assert answer.returncode == 1
    assert answer.stderr.startswith("torch 2.13.0+cpu is not built for the accelerator (rocm); give an index")


def test_where_jobs_are_submitted_the_compute_nodes_are_thought_of(machine: Machine) -> None:
    machine.offers("torch==2.13.0+cpu")
    machine.has("sbatch", "")
    told = "sbatch is here: if the compute nodes have an accelerator that this machine lacks, name it"
    assert told in machine.choose().stderr
    assert told not in machine.choose(accelerator="none").stderr
    machine.has("nvidia-smi", "GPU 0: NVIDIA H100")
    assert told not in machine.choose().stderr


def test_a_wheelhouse_is_for_an_accelerator_that_is_named(machine: Machine) -> None:
    machine.has("nvidia-smi", "GPU 0: NVIDIA H100")
    wheelhouse = ("--wheelhouse", str(machine.folder / "python"))
    refused = machine.choose(*wheelhouse)
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
    assert "say it: make wheelhouse ACCELERATOR=nvidia (nvidia, rocm, npu, xpu or none)" in refused.stderr
    assert machine.choose(*wheelhouse, accelerator="none").stdout == "torch==2.13.0\n"


@pytest.mark.parametrize(
    ("typed", "wanted", "told"),
    [
        ("nvidia", "torch==2.13.0,!=2.13.0+cpu\n", "accelerator: nvidia; torch 2.13.0: its build for"),
        ("none", "torch==2.13.0+cpu\n", "accelerator: none; torch 2.13.0: its CPU build, 2 MB"),
        ("", "", "ACCELERATOR is ''; it is one of nvidia, rocm, npu, xpu, none"),
    ],
)
def test_at_a_terminal_it_is_asked_for(machine: Machine, typed: str, wanted: str, told: str) -> None:
    machine.offers("torch==2.13.0+cpu")
    answer = machine.choose("--wheelhouse", str(machine.folder / "python"), typed=typed)
    question = (
        "Accelerator of the machines that will install from the wheelhouse (nvidia, rocm, npu, xpu or none): "
    )
    assert answer.stderr.startswith(question + told)
    assert answer.stdout == wanted


def test_the_size_that_is_said_is_that_of_the_pinned_version() -> None:
    pin = next(
        line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch==")
    )
    for processor in ("x86_64", "aarch64"):
        stated = f'("{pin.removeprefix("torch==")}", "Linux", "{processor}")'
        assert stated in SCRIPT.read_text(encoding="utf-8")
