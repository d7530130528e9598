"""Calls of benchmarks/device.py that are ended, or that meet in one folder."""

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

from benchmarks.on_device.parts import Setting
from benchmarks.on_device.runner import identify
from benchmarks.on_device.state import Measured, StateError
from tests.benchmarks.test_device import called
from tests.house.tree import ROOT

SECONDS = 30.0
"""In which a part must be gone; the one in these tests lasts a minute at least."""
LASTING = "engines-compiled"

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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_part_ends_with_its_call(tmp_path: Path, number: signal.Signals) -> None:
    """While it is at work, another call in the folder is refused."""
    with at_work(tmp_path) as (call, part):
        if number == signal.SIGTERM:
            second = called(tmp_path, "--only", "machine")
            assert (second.returncode, second.stdout) == (2, "")
            told = f"another call is at work in {tmp_path}; wait for it, or give another --out"
            assert second.stderr == f"benchmarks/device.py: {told}\n"
        assert part[0].is_running()
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


def test_a_device_that_cannot_be_identified_is_told(tmp_path: Path) -> None:
    """As where a device has fallen off its bus since it was counted."""
    with pytest.raises(StateError, match=r"the npu device cannot be identified: .*; see .*identity\.log$"):
        identify(Measured(tmp_path, {}), Setting("npu", tmp_path, 6.0))
