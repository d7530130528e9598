"""Which torch is installed follows from the accelerator and the index, and is said beforehand."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

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


DEVICES = {"nvidia-smi": "GPU 0: NVIDIA H100", "rocm-smi": "GPU[0] : 0x740f", "npu-smi": "Total Count : 8"}


def test_torch_is_chosen_by_accelerator_and_index_and_must_see_its_device(
    tmp_path: Path,
    comes_to_what_was_read: Callable[[str, Mapping[str, object]], None],
) -> None:
    """A tool without a device is no accelerator. At a terminal it is asked for."""

    def chosen(
        here: str,
        accelerator: str,
        *words: str,
        typed: str | None = None,
        prints: str | None = None,
        code: int = 0,
        offered: tuple[str, ...] = ("torch==2.13.0+cpu",),
    ) -> tuple[int, str, str]:
        """With these tools, of which the last may print something else; the index offers a CPU build."""
        shutil.rmtree(tmp_path / "machine", ignore_errors=True)
        (tmp_path / "machine").mkdir()
        machine = Machine(tmp_path / "machine")
        machine.offers(*offered)
        if "--verify" in words:
            machine.torch_says("torch.version.cuda")
        for tool in here.split():
            machine.has(tool, DEVICES.get(tool, "") if prints is None else prints, code)
        ended, out, told = machine.choose(*(words or [PYTHON]), accelerator=accelerator, typed=typed)
        return ended, out, re.sub(r"\d,\d{3} MB", "… MB", told)  # of the default build, by the processor

    comes_to_what_was_read("chosen_torch.txt", {"chosen": chosen})


def test_the_size_that_is_said_is_that_of_the_pinned_version() -> None:
    pin = next(
        line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch==")
    )
    for processor in ("x86_64", "aarch64"):
        stated = f'("{pin.removeprefix("torch==")}", "Linux", "{processor}")'
        assert stated in SCRIPT.read_text(encoding="utf-8")
