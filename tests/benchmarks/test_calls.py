"""Calls of benchmarks/device.py that are ended, that meet in one folder, or that meet another machine's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import psutil
import pytest

from benchmarks.on_device.parts import BY_NAME, Setting
from benchmarks.on_device.runner import identify
from benchmarks.on_device.state import DONE, Measured, StateError
from tests.benchmarks.test_device import called, measured_as
from tests.house.tree import ROOT

SECONDS = 30.0
"""In which a part must be gone; the one in these tests lasts a minute at least."""
LASTING = "engines"

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(600)]


@contextmanager
def at_work(out: Path) -> Iterator[tuple[subprocess.Popen[str], list[psutil.Process]]]:
    """A call and the processes of its part."""
    command = [sys.executable, str(ROOT / "benchmarks/device.py"), "--device", "cpu", "--out", str(out)]
    call = subprocess.Popen(
        [*command, "--only", LASTING],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    part: list[psutil.Process] = []
    try:
        until = monotonic() + 300
        while not part and call.poll() is None and monotonic() < until:
            sleep(0.02)
            part = [each for each in psutil.Process(call.pid).children(recursive=True) if is_part(each)]
        assert part, call.poll()
        yield call, part
    finally:
        call.kill()
        call.communicate()
        for process in part:
            if process.is_running():  # the same, not another of its number
                process.kill()


def is_part(process: psutil.Process) -> bool:
    """The one that measures, not the one that waits for it."""
    try:
        return process.cmdline()[2:4] == ["benchmarks.on_device", LASTING]
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL])
def test_a_part_ends_with_its_call(tmp_path: Path, number: signal.Signals) -> None:
    with at_work(tmp_path) as (call, part):
        call.send_signal(number)
        assert psutil.wait_procs(part, timeout=SECONDS)[1] == []
        output = call.communicate(timeout=SECONDS)[0]
    assert not (tmp_path / "device.json").exists()
    if number == signal.SIGKILL:
        assert call.returncode == -number
        return
    assert call.returncode == 128 + number
    assert output.splitlines()[-1] == f"benchmarks/device.py: ended by {number.name}; call again to go on"
    assert "Traceback" not in output


def test_a_second_call_in_the_folder_is_refused(tmp_path: Path) -> None:
    with at_work(tmp_path) as (_, part):
        second = called(tmp_path, "--only", "machine")
        assert part[0].is_running()
    assert (second.returncode, second.stdout) == (2, "")
    assert second.stderr == (
        f"benchmarks/device.py: another call is at work in {tmp_path}; wait for it, or give another --out\n"
    )


@pytest.mark.parametrize("names", [["machine"], list(BY_NAME)])
def test_another_machines_figures_are_refused(tmp_path: Path, names: list[str]) -> None:
    """Before a part is begun, and before it says that all are done."""
    parts = measured_as(tmp_path, **dict.fromkeys(names, DONE)).parts
    Measured(tmp_path, {"device": "cpu", "span": 60.0}, {"device": "A device"}, parts).save("")
    before = (tmp_path / "device.json").read_bytes()
    ended = called(tmp_path, "--only", "formats")
    assert (ended.returncode, ended.stdout) == (2, "")
    start = f"benchmarks/device.py: {tmp_path / 'device.json'} is of device 'A device', this is '"
    assert ended.stderr.startswith(start)
    assert ended.stderr.count("\n") == 1
    assert ended.stderr.endswith("give another --out, or --again all\n")
    assert (tmp_path / "device.json").read_bytes() == before
    assert {path.stem for path in (tmp_path / "logs").iterdir()} == {"identity"}


def test_a_device_that_cannot_be_identified_is_told(tmp_path: Path) -> None:
    """As where a device has fallen off its bus since it was counted."""
    with pytest.raises(StateError, match=r"the npu device cannot be identified: .*; see .*identity\.log$"):
        identify(Measured(tmp_path, {}), Setting("npu", tmp_path, 6.0))
