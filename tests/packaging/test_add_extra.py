"""An extra is added to an environment that jobs may be using, and nothing in it is replaced."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.house.tree import ROOT

PIP = """
import os, sys
words = sys.argv[1:]
for option in ("-r", "-c"):
    print(open(words[words.index(option) + 1]).read(), end="")
    words[words.index(option) + 1] = "FILE"
print(*words)
sys.exit(int(os.environ["PIP_CODE"]))
"""
INSTALLED = {"torch": "2.12.0+cu130", "numpy": "2.2.6", "setuptools": "65.5.0", "aiperf-hpc": "0.0.1"}


def add(folder: Path, code: int) -> subprocess.CompletedProcess[str]:
    """Adds the extra `simulate` where these are installed; pip prints what it is given."""
    (folder / "pip.py").write_text(PIP)
    for name, version in INSTALLED.items():
        (folder / f"{name}.dist-info").mkdir()
        (folder / f"{name}.dist-info/METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    # Without the packages of the tests (-S).
    return subprocess.run(
        [sys.executable, "-S", str(ROOT / ".ci/add_extra.py"), "simulate", "--quiet"],
        env={**os.environ, "PYTHONPATH": str(folder), "PIP_CODE": str(code)},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_what_is_installed_is_kept_and_the_rest_is_as_tested(tmp_path: Path) -> None:
    answer = add(tmp_path, 0)
    *given, command = answer.stdout.splitlines()
    assert answer.returncode == 0, answer.stderr
    assert given[:3] == ["simpy>=4.1", "numpy==2.2.6", "torch==2.12.0+cu130"]
    assert {line.partition("==")[0] for line in given[3:]} >= {"simpy", "pillow", "safetensors"}
    assert not [line for line in given[3:] if line.startswith(("torch==", "numpy==", "aiperf"))]
    assert command == "install --quiet -r FILE -c FILE"
    assert answer.stderr == "kept, although constraints.txt has other versions: torch 2.12.0+cu130\n"


def test_what_cannot_be_added_is_one_line(tmp_path: Path) -> None:
    answer = add(tmp_path, 1)
    assert answer.returncode == 1
    assert answer.stderr.splitlines()[-1] == (
        "pip cannot add the extra simulate without replacing something that jobs may be using, or cannot "
        f"download it (see above); nothing in {sys.base_prefix} was changed. For tests in an environment of "
        "their own: make test VENV=.venv-test"
    )
