"""Apptainer's definition without Apptainer: its steps in user namespaces, and a run inside."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tests.packaging.cloned import cloned
from tests.packaging.recipes import DEFINITION, header, interpreter, said, sections, tool

pytestmark = [pytest.mark.recipes, pytest.mark.slow, pytest.mark.torch, pytest.mark.timeout(1800)]

PYTHON = "3.11"
"""Version of Python in Debian bookworm."""


class Container:
    """A folder with Debian in it, as `Bootstrap: debootstrap` makes it, and %files; root only to itself."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.root.mkdir()
        keys = header(DEFINITION)
        assert keys["Bootstrap"] == "debootstrap"
        packages = keys["Include"].replace(" ", ",")
        debian = (keys["OSVersion"], folder / "root.tar", keys["MirrorURL"])
        said(tool("mmdebstrap"), "--mode=unshare", "--variant=minbase", f"--include={packages}", *debian)
        said("tar", "-xf", folder / "root.tar", "-C", self.root, "--no-same-owner", "--exclude=./dev/*")
        clone = cloned(folder / "clone")
        for line in sections(DEFINITION)["files"]:
            source, target = line.split()
            (self.root / target.lstrip("/")).mkdir(parents=True, exist_ok=True)
            said("cp", "-r", clone / source, self.root / target.lstrip("/"))

    def carry_out(self, section: str, *arguments: str, wheels: Path) -> str:
        """What a section prints, as a shell script inside; pip finds wheels alone."""
        script = "\n".join(["set -e", *sections(DEFINITION)[section]])
        inside = [
            tool("bwrap"),
            "--unshare-user",
            "--uid",
            "0",
            "--gid",
            "0",
            "--die-with-parent",
            "--clearenv",
        ]
        inside += ["--bind", self.root, "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
        inside += ["--ro-bind", wheels, "/mnt", "--chdir", "/tmp"]
        for name, value in {"PATH": "/usr/bin:/bin", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/mnt"}.items():
            inside += ["--setenv", name, value]
        return said(*inside, "/bin/sh", "-c", script, "sh", *arguments)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that %post asks pip for, and what builds; torch as `make` would choose it for this machine."""
    folder = tmp_path_factory.mktemp("wheels")
    (asked,) = [line for line in sections(DEFINITION)["post"] if " install " in line]
    extras = re.search(r"'\.(\[.*\])'", asked)
    assert extras
    python = interpreter(PYTHON)
    choose = (sys.executable, ROOT / ".ci/choose_torch.py", python)
    torch = said(*choose, environment=os.environ | {"ACCELERATOR": "none"}).strip()
    options = ("-q", "-d", folder, "-c", ROOT / "constraints.txt")
    said(python, "-m", "pip", "download", *options, torch, "setuptools>=77", f"{ROOT}{extras[1]}")
    return folder


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    """Removed afterwards: more than a GB."""
    folder = tmp_path_factory.mktemp("container")
    yield Container(folder)
    shutil.rmtree(folder)


def test_its_steps_make_a_program_that_runs(container: Container, wheels: Path) -> None:
    assert "aiperf-hpc, version" in container.carry_out("post", wheels=wheels)
    assert container.carry_out("test", wheels=wheels) == ""
    short = ("run", "--device", "cpu", "--minutes", "0.1", "--set", "training.validate_every_examples=500")
    assert re.search(
        r"^verdict +VALID", container.carry_out("runscript", *short, wheels=wheels), re.MULTILINE
    )
    with pytest.raises(AssertionError, match="No such command"):
        container.carry_out("runscript", "no-such-command", wheels=wheels)
