"""Which torch is installed follows from the accelerator and the index, and is said beforehand."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT

SCRIPT = ROOT / ".ci/choose_torch.py"
PYTHON = "PYTHON"
"""The machine's own."""


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

    def torch_says(self, true: str) -> None:
        """Its torch answers yes to this question alone."""
        case = f"  *'if {true} else'*) exit 0;;\n  *) echo 2.13.0+cpu >&2; exit 1;;\n"
        self._write("python", f'#!/bin/sh\ncase "$*" in\n{case}esac\n')

    def choose(self, *options: str, accelerator: str = "", typed: str | None = None) -> tuple[int, str, str]:
        """The exit code, output and errors. `typed` at a terminal; None: there is no terminal."""
        environment = {"PATH": str(self.folder), "ACCELERATOR": accelerator}
        words = [str(self.folder / "python") if option == PYTHON else option for option in options]
        person, terminal = os.openpty()
        os.write(person, f"{typed}\n".encode())
        try:
            answer = subprocess.run(
                [sys.executable, str(SCRIPT), *words],
                stdin=subprocess.DEVNULL if typed is None else terminal,
                capture_output=True,
                text=True,
                env=environment,
                timeout=60,
            )
            return answer.returncode, answer.stdout, answer.stderr
        finally:
            os.close(person)
            os.close(terminal)

    def _write(self, program: str, script: str) -> None:
        (self.folder / program).write_text(script)
        (self.folder / program).chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


DEFAULT, CPU, DEVICE = "torch==2.13.0\n", "torch==2.13.0+cpu\n", "torch==2.13.0,!=2.13.0+cpu\n"
DEVICES = {"nvidia-smi": "GPU 0: NVIDIA H100", "rocm-smi": "GPU[0] : 0x740f", "npu-smi": "Total Count : 8"}
NONE, TO_BUILD = "accelerator: none; torch 2.13.0: its CPU build, 2 MB\n", "its build for this device, .*MB\n"
NVIDIA = f"accelerator: nvidia; torch 2.13.0: {TO_BUILD}"
ELSEWHERE = "sbatch is here: if the compute nodes have an accelerator that this machine lacks, .*\n"
NO_ROCM = r"the default index has no torch .* \(rocm\); .* make PIP_ARGS='--extra-index-url .*\n"
NOT_BUILT = r"torch 2.13.0\+cpu is not built for the accelerator \(rocm\); give an index .*\n"
UNKNOWN = "ACCELERATOR is '{}'; it is one of nvidia, rocm, npu, xpu, none\n"
UNSAID = r"a wheelhouse .*; say it: make wheelhouse ACCELERATOR=nvidia \(nvidia, rocm, npu, xpu or none\)\n"
ASKED = r"Accelerator of the machines that will install .* \(nvidia, rocm, npu, xpu or none\): "
VERIFY, HOUSE = "--verify", "--wheelhouse"


@pytest.mark.parametrize(
    ("here", "accelerator", "words", "code", "chosen", "told"),
    [
        ("", "", [], 0, CPU, NONE),
        ("nvidia-smi", "", [], 0, DEVICE, NVIDIA),
        ("nvidia-smi", "none", [], 0, CPU, NONE),
        ("nvidia-smi", "gpu", [], 1, "", UNKNOWN.format("gpu")),
        ("npu-smi", "", [], 0, CPU, NONE.replace("none", "npu")),  # beside the CPU build
        ("rocm-smi", "", [], 1, "", NO_ROCM),
        ("rocm-smi", "", [PYTHON, "-i", "file:///"], 0, DEVICE, f"accelerator: rocm; .*{TO_BUILD}"),
        ("sbatch", "", [], 0, CPU, NONE + ELSEWHERE),
        ("sbatch", "none", [], 0, CPU, NONE),
        ("sbatch nvidia-smi", "", [], 0, DEVICE, NVIDIA),
        ("nvidia-smi", "", [VERIFY, PYTHON], 1, "", ".*but torch .* does not see it; give an index.*\n"),
        ("nvidia-smi", "none", [VERIFY, PYTHON], 0, "", ""),
        ("", "nvidia", [VERIFY, PYTHON], 0, "", ""),  # a login node
        ("", "rocm", [VERIFY, PYTHON], 1, "", NOT_BUILT),
        ("nvidia-smi", "", [HOUSE, PYTHON], 1, "", UNSAID),
        ("nvidia-smi", "none", [HOUSE, PYTHON], 0, CPU, NONE),
    ],
)
def test_torch_is_chosen_by_accelerator_and_index_and_must_see_its_device(
    machine: Machine, here: str, accelerator: str, words: list[str], code: int, chosen: str, told: str
) -> None:
    machine.offers(CPU.strip())
    if VERIFY in words:
        machine.torch_says("torch.version.cuda")
    for tool in here.split():
        machine.has(tool, DEVICES.get(tool, ""))
    answer = machine.choose(*(words or [PYTHON]), accelerator=accelerator)
    assert answer[:2] == (code, chosen)
    assert re.fullmatch(told, answer[2]), answer[2]


@pytest.mark.parametrize(("prints", "code"), [("", 0), ("No devices were found", 6)])
def test_a_tool_without_a_device_is_no_accelerator(machine: Machine, prints: str, code: int) -> None:
    """And without a CPU build, the size of the default build is stated."""
    machine.has("nvidia-smi", prints, code)
    _, chosen, told = machine.choose(PYTHON)
    assert chosen == DEFAULT
    assert re.fullmatch("accelerator: none; .*no CPU build .*default build, .* MB; to avoid it, .*\n", told)


@pytest.mark.parametrize(
    ("typed", "chosen", "told"),
    [("nvidia", DEVICE, NVIDIA), ("none", CPU, NONE), ("", "", UNKNOWN.format(""))],
)
def test_at_a_terminal_it_is_asked_for(machine: Machine, typed: str, chosen: str, told: str) -> None:
    machine.offers(CPU.strip())
    answer = machine.choose(HOUSE, PYTHON, typed=typed)
    assert answer[:2] == (int(not chosen), chosen)
    assert re.fullmatch(ASKED + told, answer[2]), answer[2]


def test_the_size_that_is_said_is_that_of_the_pinned_version() -> None:
    pin = next(
        line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch==")
    )
    for processor in ("x86_64", "aarch64"):
        stated = f'("{pin.removeprefix("torch==")}", "Linux", "{processor}")'
        assert stated in SCRIPT.read_text(encoding="utf-8")
