"""Where there is no torch the command reads journals and architectures, and says which extra trains."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from aiperf.errors import installation
from tests.house.tree import ROOT

# One process for all that is typed: starting one is most of the work.
WITHOUT = """\
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from aiperf.start import main
answers = []
for library, words in json.loads(sys.argv[1]):
    sys.modules[library] = None  # an import raises
    sys.argv = ["aiperf-hpc", *words]
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = main()
    answers.append([code, out.getvalue(), err.getvalue()])
    del sys.modules[library]
print(json.dumps(answers))
"""
READING = ["--help", "count --seed resnet18", "validate --help"]
RUNNING = [
    "run --directory never",
    "run --dry-run",
    "resume never",
    "doctor",
    "peak",
    "infer never",
    "count --roofline",
    "validate . --reevaluate",
    "nni master --directory never",
    "nni trial",
]


def typed(*lines: tuple[str, str]) -> list[tuple[int, str, str]]:
    """The code, output and errors of each line where its library is not installed."""
    words = json.dumps([(library, line.split()) for library, line in lines])
    command = [sys.executable, "-c", WITHOUT, words]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    return [(code, out, err) for code, out, err in json.loads(answer.stdout)]


def remedy(library: str) -> str:
    return f"aiperf-hpc: {library} is not installed; remedy: {installation('run')}\n"


def test_without_torch_what_reads_works_and_what_trains_says_which_extra_it_needs() -> None:
    answers = typed(*(("torch", line) for line in [*READING, *RUNNING]))
    for line, (code, out, err) in zip(READING, answers):
        assert (code, err) == (0, ""), line
        assert out, line
    for line, (code, out, err) in zip(RUNNING, answers[len(READING) :]):
        assert code, line
        assert (out, err) == ("", remedy("torch")), line
    assert not (ROOT / "never").exists()


@pytest.mark.torch
def test_every_library_of_the_extra_is_looked_for() -> None:
    libraries = ["torch", "safetensors", "sklearn", "PIL", "psutil"]
    answers = typed(*((library, "run --directory never") for library in libraries))
    assert [err for _, _, err in answers] == [remedy(library) for library in libraries]
