"""Real runs give today the figures that they gave when they were recorded, to the digit.

Each folder is a run directory of 25 November 2026, of journal version 4 (two cores of an Intel Xeon, family
6 model 167, with AMX): `alone` trains the digits in bf16 with one worker; `groups` has two groups of two
ranks under MPI, one of them lost, in two legs, and the weights of its best network; `language` is the
bundled text, whose second network is upcycled into experts and the ancestor of all later ones; `restarted`
trains the digits in fp32 as on a processor with AVX2 only, by a random search with successive halving, and
its worker was killed twice. The score of each run is kept; what another command makes of the same figures is
kept for the run of which it says most.
The path of the command in `LegBegan` was shortened afterwards, and the lines chained again.
To accept what is printed now: pytest --accept tests/recorded
"""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from aiperf.start import main

HERE = Path(__file__).parent
RUNS = ("alone", "groups", "language", "restarted")
SAID = {
    **{f"{run}/score.txt": f"score {run}" for run in RUNS},
    "groups/validate.txt": "validate groups",
    "language/validate.txt": "validate language",
    "alone/result.json": "report alone --json --output alone.json",
    "language/score.json": "score --json language",
    "restarted/status.txt": "status restarted",
    "restarted/trials.csv": "export --csv restarted",
    "language/mllog.txt": "export --mllog language",
    "groups/openmetrics.txt": "export --openmetrics groups",
    "language/graph.json": "graph language 4",
    "compare.txt": "compare alone restarted",
    "two-tasks.txt": "compare alone language",
    "scaling.txt": "scaling alone",
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
    for run in RUNS:
        shutil.copytree(HERE / run, path / run)
    return path


@pytest.mark.parametrize("name", SAID)
def test_it_says_the_same(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, as_it_was_read: Callable[[str, str], None]
) -> None:
    monkeypatch.chdir(folder)
    as_it_was_read(said(SAID[name].split()), name)
