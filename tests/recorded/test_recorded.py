"""Real runs of earlier versions give today the figures that they gave then, to the digit.

Each folder is a run directory of November 2026 (AMD EPYC 9004, two cores) with what the commands said of it:
`alone` in bf16, `lowered` as on a processor with AVX2 only, `halving` with a random search by successive
halving, `groups` with two groups of two ranks, one of them lost, in two legs, and `restarted` with a worker
that was killed twice, all of journal version 1; `version2`, like `alone`; `language`, the bundled text in
windows of 64 bytes, of version 3; and `experts`, of version 4, whose second network is upcycled into experts
and the parent of all later ones.
To accept what is printed now: python -m tests.recorded.test_recorded
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
import tempfile
from pathlib import Path
from unittest import mock

import pytest

from aiperf.start import main

HERE = Path(__file__).parent
RUNS = ("alone", "experts", "groups", "halving", "language", "lowered", "restarted", "version2")
OF_EACH = {
    "score.txt": "score {run}",
    "score.json": "score --json {run}",
    "result.json": "report {run} --json --output {run}.json",
    "validate.txt": "validate {run}",
    "status.txt": "status {run}",
    "trials.csv": "export --csv {run}",
    "mllog.txt": "export --mllog {run}",
    "openmetrics.txt": "export --openmetrics {run}",
}
SAID = {
    **{f"{run}/{name}": words.format(run=run) for run in RUNS for name, words in OF_EACH.items()},
    "alone/graph.json": "graph alone 13",
    "compare.txt": "compare alone lowered",
    "two-tasks.txt": "compare alone language",
    "restarts.txt": "compare restarted groups",
    "scaling.txt": "scaling alone",
    "not-of-one-kind.txt": "scaling alone restarted",
}


def said(words: list[str]) -> str:
    """What the command prints, typed in a folder with copies of the runs; with its exit code."""
    output = io.StringIO(newline="")
    typed = mock.patch.object(sys, "argv", ["aiperf-hpc", *words])
    with typed, contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = main()
    written = Path(words[-1]).read_text(encoding="utf-8") if "--output" in words else ""
    return f"{output.getvalue()}{written}exit code {code}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded")
    _copied(path)
    return path


@pytest.mark.parametrize("name", SAID)
def test_it_says_the_same(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert said(SAID[name].split()) == (HERE / name).read_bytes().decode()


def _copied(folder: Path) -> None:
    for run in RUNS:
        shutil.copytree(HERE / run, folder / run)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        _copied(Path(made))
        os.chdir(made)
        for name, words in SAID.items():
            (HERE / name).write_bytes(said(words.split()).encode())
