"""Runs on one host without MPI: torchrun starts the ranks, and sockets carry their messages."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import psutil
import pytest

from aiperf.journal.run_files import RunFiles
from aiperf.rules.verdict import judge
from tests.mpi.jobs import started, tiny, told
from tests.mpi.test_signals import STOPPED

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(600)]

BIN = Path(sys.executable).parent
HPC = str(BIN / "aiperf-hpc")
TORCHRUN = (str(BIN / "torchrun"), "--standalone", "--nproc-per-node=3", "--no-python", HPC)


def test_a_run_under_torchrun_is_valid(directory: Path) -> None:
    with started([*TORCHRUN, *map(str, tiny(directory, 0.1))], directory) as job:
        job.wait_for('"Released"')
        sockets = [each for worker in job.workers() for each in worker.net_connections("tcp")]
        listening = {each.laddr.ip for each in sockets if each.status == psutil.CONN_LISTEN}
        assert job.end(300.0) == 0, job.text()
    assert listening == {"127.0.0.1"}, "no other host can reach a group of one host"
    replay = told(directory)
    assert replay.leg.began.groups == ((1, 2),)
    assert replay.tested is not None
    assert judge(replay, RunFiles(directory)).valid


@pytest.mark.slow
def test_a_rank_that_dies_under_torchrun_leaves_a_result_and_no_folder(
    directory: Path, tmp_path: Path
) -> None:
    """torchrun warns the other ranks, and kills them half a minute later."""
    words = map(str, tiny(directory, 0.1, "--devices-per-trial", 1))
    with started([*TORCHRUN, *words], directory, TMPDIR=str(tmp_path)) as job:
        job.wait_for('"Closed"', count=2)
        of_rank = [each for each in job.processes() if each.environ().get("RANK") == "2"]
        next(each for each in of_rank if each not in job.workers()).kill()
        killed = time.monotonic()
        assert job.end(60.0) != 0
        assert time.monotonic() - killed < 30.0, job.text()
    found, text = told(directory), job.text()
    assert [loss.reason.partition(" on ")[0] for loss in found.leg.losses] == ["rank 2"]
    assert f" {STOPPED}; `aiperf-hpc resume {directory}`" in text
    assert list(tmp_path.glob("aiperf-hpc-*")) == []
