"""Where there is no torch the command reads journals and architectures, and says which extra trains."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.house.tree import ROOT

WITHOUT = """\
import sys
sys.modules[{library!r}] = None  # an import raises
from aiperf.start import main
sys.exit(main())
"""


def typed(library: str, words: list[str]) -> subprocess.CompletedProcess[str]:
    """The answer where this library is not installed."""
    command = [sys.executable, "-c", WITHOUT.format(library=library), *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["count", "--seed", "resnet18"], ["validate", "--help"]],
    ids=" ".join,
)
def test_it_needs_no_torch(arguments: list[str]) -> None:
    answer = typed("torch", arguments)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout


RUNNING = [
    ["run", "--directory", "never"],
    ["run", "--dry-run"],
    ["resume", "never"],
    ["doctor"],
    ["peak"],
    ["count", "--roofline"],
    ["validate", ".", "--reevaluate"],
    ["nni", "master", "--directory", "never"],
    ["nni", "trial"],
]


@pytest.mark.parametrize("arguments", RUNNING, ids=" ".join)
def test_what_trains_says_in_one_line_which_extra_it_needs(arguments: list[str]) -> None:
    answer = typed("torch", arguments)
    assert answer.returncode
    assert (answer.stdout, answer.stderr) == ("", f"aiperf-hpc: torch {REMEDY}")
    assert not (ROOT / "never").exists()


REMEDY = "is not installed; remedy: pip install 'aiperf-hpc[run]'\n"


@pytest.mark.torch
@pytest.mark.parametrize("library", ["torch", "safetensors", "sklearn", "PIL", "psutil"])
def test_every_library_of_the_extra_is_looked_for(library: str) -> None:
    answer = typed(library, ["run", "--directory", "never"])
    assert answer.stderr == f"aiperf-hpc: {library} {REMEDY}"
