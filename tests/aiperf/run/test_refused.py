"""A run that is refused before its clock starts: one line that says why, and no run directory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aiperf.device import first_kind
from aiperf.errors import DataError
from aiperf.files import RunFiles
from aiperf.journal.replay import Replay
from aiperf.ranks.process import describe_device
from aiperf.ranks.world import ALONE
from aiperf.run.run import _removed_if_refused
from tests.aiperf.data.sets import write_idx

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "aiperf", "run", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


def listing(folder: Path, text: str) -> Path:
    """An nvidia-smi of its own."""
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{text}\n")
    tool.chmod(0o755)
    return folder


def contradicted(folder: Path) -> tuple[object, ...]:
    """Options that name twelve classes where the images have four."""
    write_idx(folder)
    keys = {"name": "idx", "classes": 12, "size": 12, "validation_examples": 8, "training_examples": 0}
    return (
        "--device",
        "cpu",
        "--data",
        folder,
        *(f"--set=data.{key}={value}" for key, value in keys.items()),
    )


def test_a_refused_run_leaves_nothing_behind(tmp_path: Path) -> None:
    refused = run(
        "--preset", "digits", "--directory", tmp_path / "runs" / "one", *contradicted(tmp_path / "d")
    )
    assert refused.returncode == 1
    assert "data.classes is 12; set data.classes = 4" in refused.stderr
    assert "worker" not in refused.stderr.splitlines()[-1]
    assert not (tmp_path / "runs").exists()


def test_what_was_in_the_directory_stays(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    (tmp_path / "logs").mkdir()
    before = [tmp_path / "logs", tmp_path / "logs" / "mine", tmp_path / "slurm-1.out"]
    for path in before[1:]:
        path.touch()

    def refused() -> None:
        with _removed_if_refused(files, Replay()):
            files.journal.touch()
            files.config.touch()
            raise DataError("of other classes")

    with pytest.raises(DataError):
        refused()
    assert sorted(tmp_path.rglob("*")) == before


def test_devices_that_torch_does_not_see_are_not_replaced_by_the_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if first_kind() != "cpu":
        pytest.skip("torch sees the devices of this host")
    (tmp_path / "bin").mkdir()
    tool = listing(tmp_path / "bin", "echo 'GPU 0: NVIDIA T4 (UUID: GPU-5a)'")
    monkeypatch.setenv("PATH", str(tool), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    refused = run("--directory", tmp_path / "run")
    assert refused.returncode == 1
    last = refused.stderr.splitlines()[-1]
    assert last.startswith("aiperf-hpc: rank 1 on ")
    assert last.endswith("install the matching build of torch, or use the processor with --device cpu")
    assert not (tmp_path / "run").exists()
    assert "nvidia-smi lists 1 device, torch " in last
    assert describe_device(ALONE, "cpu").kind == "cpu"
