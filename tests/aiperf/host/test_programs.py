"""Other programs: their answers, as odd as sites have them, and processes that are warned from the start."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from aiperf.host.programs import ProgramAnswer, ToolFailed, ask, json_object, rows
from aiperf.host.scheduler_warning import ALL, held
from tests.tables import ComesTo

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


# Answers, which are never waited for long


def shell(text: str, input: str = "") -> ProgramAnswer:
    began = time.monotonic()
    found = ask(("sh", "-c", text), 15.0, input)
    assert time.monotonic() - began < 10, "a child that outlives it is not waited for"
    return found


def test_an_answer_is_read_whatever_it_holds_and_its_last_line_is_its_reason(
    comes_to_what_was_read: ComesTo,
) -> None:
    def found(text: str, form: str) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
        """The groups of the lines of this form, and the other lines."""
        read = rows(text, form)
        return [match.groups() for match in read.found], read.skipped

    names = {"ask": ask, "sys": sys, "ProgramAnswer": ProgramAnswer, "json_object": json_object}
    comes_to_what_was_read("programs.txt", {**names, "shell": shell, "found": found})


def test_only_a_program_that_is_not_there_is_missing() -> None:
    for words, is_missing in ((("no-such-program",), True), (("/",), False)):
        with pytest.raises(ToolFailed) as failed:
            ask(words, 1.0)
        assert failed.value.is_missing is is_missing
