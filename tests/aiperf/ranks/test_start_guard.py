"""MPI that does not start: one line says who is missing, and the job ends."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.ranks import start_guard
from aiperf.ranks.start_guard import Present, Start, ranks_of
from tests.tables import ComesTo

START = Start(0, 3, "node1", 4711, 4710, False, on_host=3)
ALIVE, STOPPED = Present(1, False), Present(99, True)
REMEDY = "; the job is ended; fix the cause, and start again"
LATE = "aiperf-hpc: MPI did not start within 15 minutes: "
ELSEWHERE = replace(START, size=8)


def test_the_line_names_who_is_missing(comes_to_what_was_read: ComesTo) -> None:
    comes_to_what_was_read("start_guard.txt", {**vars(start_guard), **globals()})


def test_ranks_are_found_by_their_parent_and_their_variables(tmp_path: Path) -> None:
    processes = {
        "10": ("(python) R 7", b"OMPI_COMM_WORLD_RANK=0\0"),
        "11": ("(a ) name) T 7", b"\xff\0=x\0SLURM_PROCID=\0PMI_RANK=1\0"),
        "12": ("(python) Z 7", b"PMI_RANK=2\0"),
        "13": ("(python) S 8", b"PMI_RANK=3\0"),
        "14": ("(sh) S 7", b"HOME=/\0PMI_RANK=word\0"),
        "15": ("", b""),
    }
    for process, (status, environment) in processes.items():
        folder = tmp_path / process
        folder.mkdir()
        (folder / "stat").write_text(f"{process} {status} 0 0")
        (folder / "environ").write_bytes(environment)
    (tmp_path / "16").mkdir()
    assert ranks_of(7, tmp_path) == {0: Present(10, False), 1: Present(11, True)}


PROGRAM = """
import time
from aiperf.ranks import start_guard
from aiperf.ranks.launcher import LaunchedRank
start_guard.INIT_SECONDS = {limit}
with start_guard.guarded(LaunchedRank(0, 2, "mpiexec", False), "node1"):
    time.sleep({seconds})
print("connected")
"""


@pytest.mark.parametrize(
    ("limit", "seconds", "tools", "code", "printed"),
    [
        (60.0, 0.0, ("sh", "timeout"), 0, "connected\n"),
        (60.0, 1.0, ("sh",), 0, "connected\n"),
        (
            0.5, 60.0, ("sh", "timeout"), -9,
            f"{LATE}1 rank on node1 is alive; check the network and the other hosts{REMEDY}\n",
        ),
    ],
    ids=["in time", "no program timeout", "never"],
)  # fmt: skip
def test_a_rank_that_does_not_connect_is_ended(
    limit: float, seconds: float, tools: tuple[str, ...], code: int, printed: str, tmp_path: Path
) -> None:
    for tool in tools:
        (tmp_path / tool).symlink_to(str(shutil.which(tool)))
    environment = {**os.environ, "PMI_RANK": "0", "PATH": str(tmp_path)}
    program = PROGRAM.format(limit=limit, seconds=seconds)
    ended = subprocess.run(
        [sys.executable, "-c", program],
        timeout=50, check=False, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (code, printed)
