"""What `run --dry-run` says under mpiexec, and what is refused before anything is written."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.mpi.jobs import OPEN_MPI, TINY, started

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(900)]


def printed(directory: Path, ranks: int, *words: object) -> tuple[int, str]:
    run = ["run", "--preset", TINY, "--directory", directory, "--device", "cpu", *words]
    with started(OPEN_MPI.run(ranks, *run), directory) as job:
        return job.end(), job.output.read_text()


def test_a_rehearsal_prints_the_layout_and_writes_nothing(tmp_path: Path) -> None:
    directory, host = tmp_path / "run", socket.gethostname()
    words = ("--dry-run", "--devices-per-trial", 2, "--examples-per-second", 1000)
    code, text = printed(directory, 5, *words)
    assert code == 0, text
    told = {line.split(" .")[0]: line.split(". ", 1)[1] for line in text.splitlines() if ".. " in line}
    assert told["hosts"] == f"{host}: the master, {host}: 4 ranks"
    assert told["groups"] == f"2 of 2; ranks 1 2 on {host}; 3 4 on {host}"
    assert told["backend"] == "ddp"
    assert told["devices"].startswith("4 × ")
    assert told["seed"].startswith("residual-4-8-16, ")
    assert told["training"].startswith("fp32, batch 16, ")
    assert told["memory of a device"].startswith("about ")
    assert not directory.exists()


def test_a_layout_that_cannot_be_is_refused_in_one_line(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    code, text = printed(directory, 4, "--devices-per-trial", 2)
    assert code == 1
    assert text.strip().splitlines()[0] == (
        "aiperf-hpc: --devices-per-trial 2 does not divide 1 host(s) of 3 worker(s) evenly; use one of 1, 3"
    )
    assert not directory.exists()
