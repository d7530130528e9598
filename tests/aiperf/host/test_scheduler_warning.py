"""Processes that are warned from their first moment on."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from aiperf.host.scheduler_warning import ALL, held

CHILD = """
import sys, time
time.sleep(0.5)  # as long as an import takes
from aiperf.host.scheduler_warning import outlive
outlive()
print("ready", flush=True)
sys.stdin.read()
print("done")
"""


@pytest.mark.parametrize("number", ALL)
def test_a_process_that_is_started_with_them_held_outlives_them(number: signal.Signals) -> None:
    with held(*ALL):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    child.send_signal(number)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.send_signal(number)
    answer, _ = child.communicate(timeout=60)
    assert (child.returncode, answer) == (0, "done\n")


def test_a_process_that_it_starts_can_be_ended_by_them() -> None:
    """SIG_IGN would be handed on to it."""
    program = "from aiperf.host.scheduler_warning import outlive; import subprocess; outlive(); "
    program += "child = subprocess.Popen(['sleep', '60']); child.terminate(); print(child.wait())"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert answer.stdout == f"-{int(signal.SIGTERM)}\n"


NOHUP = """
import os, signal, sys
from aiperf.host.scheduler_warning import note, noted
signal.signal(signal.SIGHUP, getattr(signal, sys.argv[1]))
note()
os.kill(os.getpid(), signal.SIGHUP)
print([signal.Signals(number).name for number in noted()])
"""


@pytest.mark.parametrize(("was", "heard"), [("SIG_DFL", "['SIGHUP']"), ("SIG_IGN", "[]")])
def test_a_master_hears_that_its_terminal_is_closed_unless_nohup_keeps_it(was: str, heard: str) -> None:
    answer = subprocess.run([sys.executable, "-c", NOHUP, was], capture_output=True, text=True, timeout=60)
    assert (answer.returncode, answer.stdout) == (0, f"{heard}\n")
