"""One run of four groups for all tests of this folder: it is made, counted and drawn once."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiperf.journal.run_files import RunFiles
from analysis.readings.judgement import Judged, examine
from tests.journals import CIFAR, Machine, resized, write_run


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFiles:
    """Three minutes on four groups of two devices; the last group is lost on the way. Not to be changed."""
    machine = Machine(groups=4, lost_groups=(3,), failing=0.1, random_seed=3)
    return write_run(tmp_path_factory.mktemp("runs") / "four-groups", resized(CIFAR, 3.0), machine)


@pytest.fixture(scope="session")
def judged(run: RunFiles) -> Judged:
    return examine(run)


@pytest.fixture
def copied(run: RunFiles, tmp_path: Path) -> RunFiles:
    """The same run in a directory of the test's own."""
    files = RunFiles(tmp_path / "four-groups")
    files.directory.mkdir()
    for path in (run.journal, run.config):
        (files.directory / path.name).write_bytes(path.read_bytes())
    return files
