"""A run that is refused before its clock starts: one line that says why, and no run directory."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from aiperf.device import first_kind
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
    keys = {"name": "idx", "classes": 12, "size": 12, "validation_images": 8, "training_images": 0}
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
    directory = tmp_path / "run"
    (directory / "logs").mkdir(parents=True)
    (directory / "logs" / "mine").write_text("kept")
    (directory / "slurm-1.out").touch()
    before = sorted(directory.rglob("*"))
    refused = run("--preset", "digits", "--directory", directory, *contradicted(tmp_path / "data"))
    assert refused.returncode == 1
    assert [path for path in sorted(directory.rglob("*")) if path.parent != directory / "logs"] == [
        path for path in before if path.parent != directory / "logs"
    ]
    assert (directory / "logs" / "mine").read_text() == "kept"


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
    assert last.endswith("install the build of torch for them, or choose the processor by --device cpu")
    assert not (tmp_path / "run").exists()
    rehearsed = run("--dry-run", "--images-per-second", 100)
    assert rehearsed.returncode == 1
    assert "nvidia-smi lists 1 device, torch " in rehearsed.stderr
    assert run("--dry-run", "--images-per-second", 100, "--device", "cpu").returncode == 0


def test_a_tool_that_hangs_holds_no_run_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if first_kind() != "cpu":
        pytest.skip("torch sees the devices of this host")
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(listing(tmp_path / "bin", "sleep 200")), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    began = time.monotonic()
    refused = run("--directory", tmp_path / "run")
    assert refused.returncode == 1
    assert "nvidia-smi gives no answer in 10 s" in refused.stderr
    assert time.monotonic() - began < 120
