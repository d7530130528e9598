"""A rank that something slows is named, by `status` while the run goes on and by the report afterwards.

Every worker has a session of its own, and Linux shares the processor evenly between sessions (sched(7), "The
autogroup feature"). So a busy loop in the session of one worker slows that one alone, however few cores
there are and whatever else the machine does. Where that is switched off, each worker gets a control group.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from aiperf.journal.file import read_journal
from aiperf.journal.replay import replay
from aiperf.journal.run_files import RunFiles
from analysis.exports.summary import status_text
from analysis.pages.report import report_html
from analysis.readings.judgement import examine
from tests.mpi.jobs import OPEN_MPI, Job, started, tiny
from tests.mpi.test_signals import CONTINUE

pytestmark = [pytest.mark.mpi, pytest.mark.slow, pytest.mark.timeout(900)]

AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")
SLOWED = 4
"""The rank that is slowed; with one device per trial, it is group 3."""
NAMED_SECONDS = 70.0
CONTROL = Path("/sys/fs/cgroup/cpu")
"""Control groups of version 1; only root may write there."""


def slow_lines(directory: Path) -> list[str]:
    """The lines of `status` on slow ranks, made in this process, because on a busy machine a new one is
    late."""
    files = RunFiles(directory)
    lines = status_text(replay(read_journal(files.journal)), files).splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("slow"))
    return [line.removeprefix("slow").strip() for line in lines[first:]]


@contextmanager
def apart(job: Job) -> Iterator[None]:
    """Each worker, with what it starts, has a share of the processor of its own."""
    if AUTOGROUP.read_text().strip() == "1":
        yield
        return
    groups = [CONTROL / f"aiperf-test-{job.mark}-{rank}" for rank in range(1, 5)]
    assert os.access(CONTROL, os.W_OK), "neither sessions nor control groups share this machine evenly"
    try:
        for rank, group in enumerate(groups, start=1):
            group.mkdir()
            (group / "cgroup.procs").write_text(str(job.worker(rank).pid))
        yield
    finally:
        for process in job.processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()
                process.wait(10)
        for group in groups:
            group.rmdir()


def test_a_busy_loop_beside_one_of_four_ranks_is_named(directory: Path) -> None:
    each = ["--device", "cpu", "--devices-per-trial", 1, "--set", "training.epochs=[30]"]
    with started(OPEN_MPI.run(5, *tiny(directory, 1.5, *each)), directory, AIPERF_TEST_BUSY="1") as job:
        job.wait_for('"Released"', seconds=450.0)
        with apart(job):
            time.sleep(12)
            assert not any("group 3" in line for line in slow_lines(directory))
            job.worker(SLOWED).send_signal(signal.SIGRTMIN)
            until, times = time.monotonic() + NAMED_SECONDS, 0
            # In a row: near the limit it is named and not named in turn, and the end adds to the data.
            while times < 10:
                times = times + 1 if any("group 3" in line for line in slow_lines(directory)) else 0
                assert time.monotonic() < until, slow_lines(directory)
                time.sleep(1)
            job.master().send_signal(signal.SIGTERM)  # what follows would show nothing more
            assert job.end() == CONTINUE, job.text()
        assert "group 3 on" in job.text()
    named = [line for line in slow_lines(directory) if line.startswith("group")]
    assert len(named) == 1, named
    assert "below the median of the groups' rates on comparable work" in named[0]
    assert "group 3 on" in report_html(examine(RunFiles(directory)))
