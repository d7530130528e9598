"""Pytest as the Makefile starts it, over tests that die, hang, or make it wait."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.house.tree import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SECONDS = 800.0
"""That these processes may take: eight of them start one after another, for which a machine with a thirtieth
of a core left needs two minutes."""

DIES = """
import os, pytest

@pytest.mark.parametrize("number", range(4))
def test_one(number):
    if number in {numbers}:
        os.abort()
"""
# A mutex that is locked twice: no signal wakes whoever waits for it, as in a library's threads.
HANGS = """
import ctypes

def test_hang():
    mutex, lock = ctypes.create_string_buffer(64), ctypes.CDLL(None).pthread_mutex_lock
    lock(mutex), lock(mutex)

def test_after():
    pass
"""
WAITS = """
import time, pytest

@pytest.mark.timeout(1000)
def test_wait():
    time.sleep(1000)
"""


SKIPS = """
import pytest

@pytest.mark.mpi
@pytest.mark.skip(reason="not to be had here")
def test_one():
    pass
"""


def as_made(folder: Path, limit: int, *options: str, **files: str) -> subprocess.CompletedProcess[str]:
    """`make test`, with tests of ours and two processes, as a shell starts it in the background."""
    (processes,) = re.findall(r"^PROCESSES = (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    processes = processes.replace("$(JOBS)", "2").split()
    (folder / "tests").mkdir()
    (folder / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    for name, text in files.items():
        (folder / f"tests/test_{name}.py").write_text(text)
    ours = f"-p tests.processes -q --junitxml=report.xml -o timeout={limit}".split()
    ours += ["-o", f"pythonpath={ROOT}", f"--rootdir={folder}"]
    path = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    words = [sys.executable, "-m", "pytest", *processes, *ours, *options]
    return subprocess.run(
        words,
        cwd=folder,
        env=path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )


def outcomes(folder: Path) -> dict[str, list[str]]:
    """For each test, one entry per execution: its failure, or nothing."""
    found: dict[str, list[str]] = {}
    for case in ElementTree.parse(folder / "report.xml").iter("testcase"):
        name = f"{case.get('classname')} {case.get('name')}".replace("tests.test_", "")
        found.setdefault(name, []).append("".join(child.get("message", "") for child in case))
    return found


def test_a_process_that_dies_or_hangs_fails_its_test_and_the_others_go_on(tmp_path: Path) -> None:
    dying = {"middle": {1, 2}, "end": {3}, "start": {0}, "whole": set[int]()}
    files = {name: DIES.format(numbers=numbers) for name, numbers in dying.items()}
    answer = as_made(tmp_path, 4, **files, hang=HANGS)
    found = outcomes(tmp_path)
    dead = {f"{name} test_one[{number}]" for name, numbers in dying.items() for number in numbers}
    failed = {name for name, times in found.items() if times != [""]}
    assert failed == {*dead, "hang test_hang"}, answer.stdout
    assert len(found) == 18
    assert all(len(times) == 1 for times in found.values())
    assert answer.returncode == 1
    assert "5 failed, 13 passed" in answer.stdout
    assert 'test_hang.py", line 6 in test_hang' in answer.stderr  # what the process did when it was ended
    assert "had not ended" not in answer.stdout


def test_pytest_ends_and_says_what_had_not_when_no_process_reports(tmp_path: Path) -> None:
    """After 24 s: a loaded machine takes some of them to start the processes."""
    answer = as_made(tmp_path, 3, wait=WAITS, whole=DIES.format(numbers={}))
    assert re.search(r"no test process has reported anything for \d+ s: ending them all", answer.stdout)
    assert re.search(r"^=+ had not ended =+\ntests/test_wait.py::test_wait$", answer.stdout, re.MULTILINE)
    assert "4 passed" in answer.stdout
    assert answer.returncode == 2


def test_a_suite_of_which_all_is_skipped_does_not_pass(tmp_path: Path) -> None:
    answer = as_made(tmp_path, 60, "-m", "mpi", skips=SKIPS)
    assert "1 skipped" in answer.stdout
    assert answer.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
