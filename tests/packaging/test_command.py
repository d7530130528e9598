"""What the command does where there is no torch: everything that reads a journal or an architecture."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.house.tree import ROOT

WITHOUT_TORCH = """\
import sys
sys.modules["torch"] = None  # an import raises
from aiperf.start import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["count", "--seed", "resnet18"], ["validate", "--help"]],
    ids=" ".join,
)
def test_it_needs_no_torch(arguments: list[str]) -> None:
    command = [sys.executable, "-c", WITHOUT_TORCH, *arguments]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout
