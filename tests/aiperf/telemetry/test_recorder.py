"""The process that records: what it costs, what it survives, what its lines add up to, and whose processors a
host's are."""

from __future__ import annotations

import inspect
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from math import inf
from pathlib import Path
from typing import Any

import psutil
import pytest

from aiperf.journal.run_files import RunFiles
from aiperf.telemetry.host_use import Counters, Meter, used
from aiperf.telemetry.recorder import Recorder, Watched
from analysis.readings.telemetry import records
from analysis.readings.usage import read_usage
from tests.aiperf.telemetry.fakes import pynvml as fake
from tests.analysis.readings.test_usage import DEVICE, UNKNOWN, run_between

pytestmark = pytest.mark.timeout(120)


def wait_until(reached: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFiles:
    """A run directory; whatever is started finds the fake NVML."""
    monkeypatch.setenv("PYTHONPATH", str(Path(fake.__file__).parent), prepend=os.pathsep)
    return RunFiles(tmp_path)


@contextmanager
def recorder(
    files: RunFiles, library: str = "nvidia", devices: tuple[str, ...] = (DEVICE,), lines: int = 1
) -> Iterator[Recorder]:
    """One that records, and has written this many lines."""
    path = files.telemetry("node1")
    recording = Recorder(path, library, {each: each for each in devices})
    try:
        wait_until(lambda: path.exists() and path.read_bytes().count(b"\n") >= lines)
        yield recording
    finally:
        recording.close()


def read(files: RunFiles) -> list[dict[str, Any]]:
    path = files.telemetry("node1")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_counter_of_known_power_gives_the_joules_of_exactly_the_span(
    files: RunFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lines reach from its start to its end: a span that ends between two seconds has a sample on either
    side. It is not given what DCMI cannot be used with."""
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "4,5")
    with recorder(files, lines=6) as recording:
        assert "ASCEND_RT_VISIBLE_DEVICES" not in psutil.Process(recording._process.pid).environ()
        closed = time.time()
    lines = read(files)
    first, last = lines[0]["wall_seconds"], lines[-1]["wall_seconds"]
    assert first < closed <= last
    began, ended = first + 1.37, last - 1.31
    found = read_usage(files, run_between(began, ended, first - 20))
    assert found.joules == pytest.approx(fake.WATTS * (ended - began), rel=0.01)
    (use,) = found.devices
    assert use.by_counter
    assert use.mean_clock_hertz == use.least_clock_hertz == 1755e6
    assert use.mean_temperature_celsius == 64.0
    half = pytest.approx((ended - began) / 2, abs=1.1)  # every other second
    assert use.throttled_seconds == {"power cap": half, "temperature": half}


@pytest.mark.parametrize("trouble", ["vanish", "nonsense"])
def test_a_sensor_that_vanishes_or_talks_nonsense_is_unknown(
    files: RunFiles, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    monkeypatch.setenv("FAKE_NVML_TROUBLE", trouble)
    with recorder(files, lines=6):
        pass
    lines = read(files)
    assert [_tells_power(lines[place]) for place in (1, -1)] == [True, False]
    assert ("unknown" in lines[-1]["devices"][0]) == (trouble == "vanish")
    assert "utilisation" in lines[-2]["host"]  # the last line may follow it at once
    first, last = lines[0]["wall_seconds"], lines[-1]["wall_seconds"]
    found = read_usage(files, run_between(first + 0.5, last - 0.5, first - 1))
    assert (found.joules, found.missing) == (None, UNKNOWN)


@pytest.mark.slow
def test_a_sensor_that_hangs_holds_nobody_up(files: RunFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile the recorder costs less than half a per cent of a core."""
    monkeypatch.setenv("FAKE_NVML_TROUBLE", "hang")
    with recorder(files, lines=3) as recording:
        process = psutil.Process(recording._process.pid)
        before, began = process.cpu_times(), time.monotonic()
        wait_until(lambda: len(read(files)) >= 16)
        after, ended = process.cpu_times(), time.monotonic()
        assert process.nice() == 19
    spent = after.user + after.system - before.user - before.system
    assert spent / (ended - began) <= 0.005
    lines = read(files)
    # The recorder has the lowest priority: on a busy machine its lines may be seconds apart, so times count.
    stretches = [(told, list(part)) for told, part in groupby(lines, _tells_power)]
    assert (stretches[0][0], stretches[-1][0]) == (True, True), "it is heard before, and again after"
    silent = max((part for told, part in stretches if not told), key=len)
    seconds = silent[-1]["wall_seconds"] - silent[0]["wall_seconds"]
    assert fake.HANG_SECONDS - 4 < seconds < fake.HANG_SECONDS + 4
    assert len(silent) >= 4, "it went on with the others"
    assert all(line["host"].get("memory_bytes") for line in silent[1:])
    assert {line["devices"][0]["unknown"] for line in silent} == {"does not answer"}


def _tells_power(line: dict[str, Any]) -> bool:
    return "power_watts" in line["devices"][0]


def test_a_full_disk_costs_the_lines_that_do_not_fit_and_no_more(files: RunFiles) -> None:
    """As a limit on the size of its file does it, which is lifted after a while."""
    path = files.telemetry("node1")
    with recorder(files, lines=2) as full:
        size = path.stat().st_size + 30
        resource.prlimit(full._process.pid, resource.RLIMIT_FSIZE, (size, -1))
        wait_until(lambda: path.stat().st_size >= size)  # it has written what still fitted
        time.sleep(1.5)  # a line that does not fit at all
        assert path.stat().st_size == size
        resource.prlimit(full._process.pid, resource.RLIMIT_FSIZE, (-1, -1))
        wait_until(lambda: path.stat().st_size >= size + 500)
    told = list(records(path))
    assert told.count(None) == 1, "the line that was cut off"
    assert told[-1] is not None


def test_a_line_that_another_recorder_left_unfinished_spoils_no_other(files: RunFiles) -> None:
    """The lines after it say that the library of the device is not installed."""
    path = files.telemetry("node1")
    path.parent.mkdir()
    path.write_text('{"wall_seconds": 1.0}\n{"wall_sec')
    with recorder(files, "amd", ("some-device",), lines=4):
        pass
    assert path.read_text().splitlines()[1] == '{"wall_sec'
    told = list(records(path))
    assert (told[0], told[1]) == ({"wall_seconds": 1.0}, None)
    assert None not in told[2:]
    missing = {"id": "some-device", "unknown": "ModuleNotFoundError: No module named 'amdsmi'"}
    assert told[-1]["devices"] == [missing]


@pytest.mark.contract
def test_it_ends_with_whoever_started_it(files: RunFiles) -> None:
    program = (
        "import sys, time; from pathlib import Path; from aiperf.telemetry.recorder import Recorder; "
        "print(Recorder(Path(sys.argv[1]), '', {})._process.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(files.telemetry("node1"))], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        orphan = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    orphan.wait(10)


def test_the_fake_has_the_signatures_of_the_real_module() -> None:
    import pynvml as real  # of nvidia-ml-py

    for name, value in vars(fake).items():
        if name.startswith("nvml"):
            own, other = inspect.signature(value), inspect.signature(getattr(real, name))
            assert list(own.parameters) == list(other.parameters), name
        elif name.startswith("NVML_"):
            assert value == getattr(real, name), name
        elif name.startswith("NVMLError_"):
            assert issubclass(real.NVMLError, Exception)
            assert hasattr(real, name), name


# The run's processes, whatever becomes of them, and all others


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
