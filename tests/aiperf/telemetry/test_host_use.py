"""Whose processors a host's are: the run's processes, whatever becomes of them, and all others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path

import psutil
import pytest

from aiperf.telemetry.host_use import Counters, Meter, used
from aiperf.telemetry.recorder import Recorder, Watched
from tests.aiperf.telemetry.waiting import wait_until

ONE = {0: (10.0, 1.0), 1: (20.0, 0.0)}
LATER = {0: (12.0, 1.5), 1: (20.0, 0.0)}
BURNS = "import time\nwhile time.process_time() < {seconds}: pass\n"
WITH_CHILD = f"""
import os, subprocess, sys
sys.stdin.readline()
subprocess.run([sys.executable, "-S", "-c", {BURNS.format(seconds=0.5)!r}])
print(sum(os.times()[:4]), flush=True)
sys.stdin.read()
"""
pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize(
    ("cores", "available", "others"), [(inf, 20.0, 20.0 - 12.0 - 2.0), (1.5, 15.0, 1.0), (1.0, 10.0, 0.0)]
)
def test_others_took_what_the_run_could_have_used_and_did_not(
    cores: float, available: float, others: float
) -> None:
    found = used(Counters(5.0, ONE, 100.0), Counters(15.0, LATER, 112.0), cores, 0.25)
    assert found == (10.0, available, 12.0, 2.0, 0.5, 0.25)
    assert max(0.0, found.available - found.own - found.idle) == others


@pytest.fixture
def started() -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []

    def start(code: str) -> subprocess.Popen[str]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        processes.append(subprocess.Popen([sys.executable, "-S", "-c", code], **pipes))  # type: ignore[call-overload]
        return processes[-1]

    yield start
    for process in processes:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate()


def test_a_child_that_has_ended_counts_and_a_stranger_does_not(
    started: Callable[[str], subprocess.Popen[str]],
) -> None:
    own = started(WITH_CHILD)
    meter = Meter([own.pid], inf)  # before anything is burnt
    stranger = started(BURNS.format(seconds=0.5))
    own.stdin.write("\n")
    own.stdin.flush()
    seconds = float(own.stdout.readline())
    stranger.wait()
    found = meter.use()
    assert found.own == pytest.approx(seconds, abs=0.1)
    assert found.available - found.own - found.idle > 0.3
    assert found.available == pytest.approx(found.seconds * len(os.sched_getaffinity(0)), rel=0.05)


def test_a_stop_counts_as_long_as_it_lasts(started: Callable[[str], subprocess.Popen[str]]) -> None:
    own = started("import sys; sys.stdin.read()")
    meter = Meter([own.pid], inf)
    for stop in (False, True, True, True, True, False):
        own.send_signal(signal.SIGSTOP if stop else signal.SIGCONT)
        wait_until(lambda stop=stop: (psutil.Process(own.pid).status() == psutil.STATUS_STOPPED) == stop)
        time.sleep(0.1)
        meter.look(0.1)
    stopped = meter.use().stopped
    assert 0.39 < stopped < 5.0
    assert meter.use().stopped == 0.0


def test_the_recorder_reports_and_notices_its_own_stop(
    tmp_path: Path, started: Callable[[str], subprocess.Popen[str]]
) -> None:
    own, heard = started("import sys; sys.stdin.read()"), list[dict[str, float]]()
    watched = Watched([own.pid], inf, 1.0, lambda fields: heard.append(dict(fields)))
    recording = Recorder(tmp_path / "host.jsonl", "", {}, watched)
    try:
        wait_until(lambda: len(heard) > 0)
        recording._process.send_signal(signal.SIGSTOP)
        time.sleep(4.0)
        recording._process.send_signal(signal.SIGCONT)
        wait_until(lambda: sum(each["stopped"] for each in heard) > 0)
    finally:
        recording.close()
    assert sum(each["stopped"] for each in heard) == pytest.approx(3.5, abs=1.0)
    assert json.loads((tmp_path / "host.jsonl").read_text().splitlines()[0])["host"]
