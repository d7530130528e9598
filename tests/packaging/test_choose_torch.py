"""Which torch is installed follows from the accelerator and the index, and is said beforehand."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.house.tree import ROOT
from tests.tables import ComesTo

SCRIPT = ROOT / ".ci/choose_torch.py"
PYTHON = "PYTHON"
"""The machine's own."""


DEVICES = {"nvidia-smi": "GPU 0: NVIDIA H100", "rocm-smi": "GPU[0] : 0x740f", "npu-smi": "Total Count : 8"}
"""What vendors' tools print of a device."""


def answering(answers: Mapping[str, str], otherwise: str) -> str:
    """What a Python runs if its words end so, or are anything else."""
    cases = "".join(f"  {words}) {command};;\n" for words, command in {**answers, "*": otherwise}.items())
    return f'case "$*" in\n{cases}esac\n'


def test_torch_is_chosen_by_accelerator_and_index_and_must_see_its_device(
    tmp_path: Path, comes_to_what_was_read: ComesTo
) -> None:
    """On a machine that is a folder of programs: vendors' tools, and a Python whose pip has an index. A tool
    without a device is no accelerator. At a terminal it is asked for."""
    wheel = tmp_path / "torch.whl"
    wheel.write_bytes(bytes(2_000_000))
    report = json.dumps({"install": [{"download_info": {"url": wheel.as_uri()}}]})

    def chosen(
        here: str,
        accelerator: str,
        *words: str,
        typed: str | None = None,
        prints: str | None = None,
        code: int = 0,
        offered: tuple[str, ...] = ("torch==2.13.0+cpu",),
    ) -> tuple[int, str, str]:
        """The exit code, output and errors, with these tools, of which all may print something else; the
        index offers a CPU build. `typed` at a terminal; None: there is no terminal."""
        machine = tmp_path / "machine"
        shutil.rmtree(machine, ignore_errors=True)
        machine.mkdir()
        programs = {
            tool: f"printf '%s' '{DEVICES.get(tool, '') if prints is None else prints}'\nexit {code}\n"
            for tool in here.split()
        }
        builds = {f"*'{build}'": f"printf '%s' '{report}'; exit 0" for build in offered}
        programs["python"] = answering(builds, "echo 'ERROR: No matching distribution found' >&2; exit 1")
        if "--verify" in words:  # its torch answers yes to this question alone
            seen = {"*'if torch.version.cuda else'*": "exit 0"}
            programs["python"] = answering(seen, "echo 2.13.0+cpu >&2; exit 1")
        for program, script in programs.items():
            (machine / program).write_text(f"#!/bin/sh\n{script}")
            (machine / program).chmod(0o755)
        person, terminal = os.openpty()
        os.write(person, f"{typed}\n".encode())
        answer = subprocess.run(
            [
                sys.executable,
                SCRIPT,
                *(machine / "python" if each == PYTHON else each for each in words or (PYTHON,)),
            ],
            stdin=subprocess.DEVNULL if typed is None else terminal,
            capture_output=True,
            text=True,
            env={"PATH": str(machine), "ACCELERATOR": accelerator},
            timeout=60,
        )
        os.close(person)
        os.close(terminal)
        told = re.sub(r"\d,\d{3} MB", "… MB", answer.stderr)  # of the default build, by the processor
        return answer.returncode, answer.stdout, told

    comes_to_what_was_read("chosen_torch.txt", {"chosen": chosen})


def test_the_size_that_is_said_is_that_of_the_pinned_version() -> None:
    pin = next(
        line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch==")
    )
    for processor in ("x86_64", "aarch64"):
        stated = f'("{pin.removeprefix("torch==")}", "Linux", "{processor}")'
        assert stated in SCRIPT.read_text(encoding="utf-8")
