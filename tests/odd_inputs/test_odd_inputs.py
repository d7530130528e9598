"""What comes from outside may be odd bytes, nothing, a word or huge: it is read, or refused in one line."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from aiperf.errors import AiperfError
from aiperf.journal.run_files import RunFiles
from tests.house.tree import PACKAGES, ROOT, expect_none, sources
from tests.odd_inputs import cases
from tests.odd_inputs.cases import Case
from tests.odd_inputs.places import Places, places

REFUSED = (AiperfError, OSError)
LONGEST_LINE = 1000
ENDS = {0: "exec /bin/cat", 18: "/bin/cat"}
"""What prints the answer before a program ends so, with as few processes as it can."""
INNER = {"NotBuilt": "the reason why there are no kernels, which a run shows or raises"}
"""Errors of a part of the program, with where a user sees them."""


def test_every_place_has_a_case_and_every_case_a_place() -> None:
    texts = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in sources(*PACKAGES)}
    found = places(texts)
    expect_none(f"{place}: read it through aiperf/host/variables.py" for place in found.unread)
    every = (*cases.VARIABLE_CASES, *cases.PROCESS_CASES, *cases.FILE_CASES)
    known = {*cases.WITHOUT_CASE, *(place for case in every for place in case.places)}
    there = found.processes | found.files | found.variables
    expect_none(f"{place}: without a case; add one in tests/odd_inputs" for place in there - known)
    expect_none(f"{place}: has a case, and is not there" for place in known - there)
    tests = {reason for reason in cases.WITHOUT_CASE.values() if reason.startswith("tests/")}
    expect_none(f"{path}: there is no such test" for path in tests if not (ROOT / path).is_file())


PLANTED = """
import os, subprocess
from aiperf.host import variables
from aiperf.host.programs import ask
class Reader:
    def look(self, environment):
        return os.environ["A"], environment.get("B"), "C" in os.environ, os.getenv("D")
    def write(self, path):
        os.environ["E"] = "1"; path.open("wb"); os.open(path, os.O_WRONLY | os.O_CREAT)
    def hear(self, path):
        return subprocess.run(["x"]), variables.word(os.environ, "F"), path.read_text()
def wait():
    return ask(("x",), 1.0), open("y")
"""


def test_what_is_planted_is_found() -> None:
    both = {"a.py Reader.hear", "a.py wait"}
    assert places({"a.py": PLANTED}) == Places(both, both, {"a.py 'F'"}, {"a.py:7"})


def by_place(every: Iterable[Case]) -> list[object]:
    return [
        pytest.param(case, marks=[pytest.mark.torch] * case.needs_torch, id=case.places[-1].replace(" ", ":"))
        for case in every
    ]


@pytest.mark.parametrize("case", by_place(cases.VARIABLE_CASES))
def test_a_variable_may_hold_anything(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in case.subjects:
        for value in cases.VALUES.values():
            given = {**case.given, name: value}
            with monkeypatch.context() as patch:
                for each in given:
                    patch.setenv(each, given[each])
                told = refusal(partial(case.call, environment={"HOME": str(tmp_path), **given}))
            assert not told or any(each in told for each in (*given, "/")), told


@pytest.mark.parametrize("case", by_place(cases.PROCESS_CASES))
def test_a_program_may_print_anything(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    files = [tmp_path / "bin" / program for program in case.subjects]
    for index, content in enumerate(cases.CONTENTS.values()):
        (tmp_path / "answer").write_bytes(content)
        for code in (0, 18):
            for file in files:
                file.write_text(f'#!/bin/sh\n{ENDS[code]} "{tmp_path}/answer"\nexit {code}\n')
                file.chmod(0o755)
            folder = tmp_path / f"{index}-{code}"
            folder.mkdir()
            refusal(partial(case.call, folder=folder))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    shutil.copytree(ROOT / "tests/recorded/alone", folder / "run")
    (folder / "site.toml").write_text("[queue]\npartition = 'p'\n")
    (folder / "study").mkdir()
    study = {"scheduler": "slurm", "nodes": [1], "hours": 1.0, "options": [], "config_hash": ""}
    (folder / "study/study.json").write_text(json.dumps(study))
    return folder


@pytest.mark.parametrize("case", by_place(cases.FILE_CASES))
def test_a_file_may_hold_anything(
    case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch, typed: Any
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", "")
    for name in ("aiperf.doctor.host_report.PROBE_SECONDS", "aiperf.training.driver.PROBE_SECONDS"):
        if case.places[0].startswith(name.rpartition(".")[0].replace(".", "/")):
            monkeypatch.setattr(name, 0.0)
    path = folder / case.subjects[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_bytes() if path.exists() else None
    try:
        for content in (*cases.CONTENTS.values(), None):
            path.write_bytes(content or b"")
            if content is None:
                os.truncate(path, cases.SIZES)
            if ":" in case.function:
                refusal(partial(case.call, folder=folder, path=path, run=RunFiles(folder / "run")))
            else:
                expect_read_or_refused(typed(*case.function.split()), typed.err, path.name.split(".")[0])
    finally:
        path.unlink()
        if before is not None:
            path.write_bytes(before)


def expect_read_or_refused(code: int, told: str, name: str) -> None:
    """By a command, which names the file in each line of a refusal."""
    assert code in (0, 1, 2, 3, 75), told
    if code == 1 and told:
        assert all(line.startswith("aiperf-hpc: ") for line in told.splitlines()), told
        assert name in told


def refusal(call: Callable[[], object]) -> str:
    """The line with which the call is refused; empty if it is not. Any other error is a fault."""
    try:
        call()
    except Exception as error:
        if not isinstance(error, REFUSED) and type(error).__name__ not in INNER:
            raise
        return one_line(str(error))
    return ""


def one_line(text: str) -> str:
    assert "\n" not in text
    assert len(text) <= LONGEST_LINE, text[:2000]
    return text
