"""Processes that answer one question: over a descriptor of their own, whatever else is printed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from aiperf.errors import ForeignLibrary
from aiperf.host.child_process import Child, NoReply, NotInTime, answer_file, put, written
from tests.house.tree import ROOT
from tests.tables import ComesTo

SITE = """
import atexit, os, sys
print("a module was loaded"); sys.stdout.flush()
atexit.register(lambda: (print('["answer", "bye"]'), print("bye", file=sys.stderr)))
"""
FUNCTIONS = """
import ctypes, os, sys, time
from aiperf.errors import AiperfError

def answer(word):
    print("chatter"); os.write(1, b"M\\xfcller")
    return {"word": word}

def exits(word):
    import atexit
    atexit.register(lambda: os._exit(3))
    return word

def refuses(word):
    raise AiperfError(f"{word} is not a folder")

def fails(word):
    raise KeyError(word)

def dies(word):
    print(f"Fatal: {word}", flush=True)
    os.kill(os.getpid(), 9)

def imports(word):
    import no_library

def hangs(word):
    time.sleep(60)

def leaves(word):
    print(word, flush=True)
    os._exit(4)
"""


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a site's hooks, and the functions that are called."""
    (tmp_path / "sitecustomize.py").write_text(SITE)
    (tmp_path / "called_functions.py").write_text(FUNCTIONS)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")


@pytest.mark.parametrize(("function", "found"), [("answer", {"word": "ü"}), ("exits", "ü")])
def test_what_a_site_prints_is_not_its_answer(function: str, found: object) -> None:
    assert Child(f"called_functions:{function}", "ü").answer(30.0) == found


def test_a_python_without_files_in_memory_has_its_answer_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was built for a C library older than 2.27, as conda's."""
    monkeypatch.delattr(os, "memfd_create")
    with answer_file() as file:
        put(str(file.fileno()), ["answer", 3])
        assert written(file) == '["answer", 3]'


def test_a_process_without_an_answer_has_a_reason(comes_to_what_was_read: ComesTo) -> None:
    comes_to_what_was_read("no_answers.txt", {"Child": Child})


def test_one_that_hangs_is_killed() -> None:
    began = time.monotonic()
    with pytest.raises(NotInTime, match=r"^no answer in 1 s$"):
        Child("called_functions:hangs", "").answer(1.0)
    assert time.monotonic() - began < 10


def test_a_library_from_elsewhere_is_named_with_its_folder(
    folders: Iterator[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    def imported(library: str, text: str) -> object:
        """What a process answers for which a folder of PYTHONPATH has this library, or the fault and its
        remedy. Versions of Python end some of their errors in other words."""
        folder = next(folders)
        (folder / library).mkdir(parents=True)
        (folder / library / "__init__.py").write_text(text)
        (folder / "asks.py").write_text(f"def nan():\n    import {library}\n    return {library}.nan")
        monkeypatch.setenv("PYTHONPATH", f"{folder}:{tmp_path}:{ROOT}")
        try:
            return Child("asks:nan").answer()
        except ForeignLibrary as error:
            told = f"{error.seen}; {error.remedy}".replace(str(folder), "HERE")
            return re.sub(r"(Missing parentheses in call to 'print'|no attribute 'nan').*\)", r"\1…)", told)

    comes_to_what_was_read("foreign_folders.txt", {"imported": imported})


def test_so_is_one_that_the_command_itself_imports(
    folders: Iterator[Path], comes_to_what_was_read: ComesTo
) -> None:
    """Unless the command needs no such library."""

    def command(files: Mapping[str, str]) -> tuple[int, list[str]]:
        """Where these files are in a folder of PYTHONPATH."""
        (folder := next(folders)).mkdir()
        for name, text in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        program = "from aiperf.start import main; raise SystemExit(main())"
        words = [sys.executable, "-c", program, "list", str(ROOT / "tests/recorded/alone")]
        env = {**os.environ, "PYTHONPATH": f"{folder}:{os.environ['PYTHONPATH']}"}
        answer = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=folder, env=env)
        lines = [line for line in answer.stderr.splitlines() if line.startswith("aiperf-hpc: ")]
        return answer.returncode, [
            re.sub(r"\(.*\)", "(…)", line.replace(str(folder), "HERE")) for line in lines
        ]

    comes_to_what_was_read("foreign_libraries.txt", {"command": command})


def test_a_fault_of_this_program_is_blamed_on_no_library(tmp_path: Path) -> None:
    """Also where the folder of a site with a library of its own is on the way."""
    (tmp_path / "click").mkdir()
    text = "import aiperf.errors\ndef Group(*words):\n    raise KeyError('ours')"
    (tmp_path / "click" / "__init__.py").write_text(text)
    with pytest.raises(NoReply, match=r"^its process failed: KeyError: 'ours'$"):
        Child("click:Group", json.dumps({})).answer()
