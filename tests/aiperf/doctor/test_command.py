"""`aiperf-hpc doctor` as a person types it, on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from aiperf.device import first_kind
from tests.launch.stand_ins import install

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(600)]


def doctor(*words: object) -> subprocess.CompletedProcess[str]:
    """What the command prints, with its messages where they come."""
    command = [sys.executable, "-u", "-m", "aiperf", "doctor", *map(str, words), "--wait-seconds", "300"]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that lists a device which torch may not see."""
    install(tmp_path / "bin", {"nvidia-smi": "#!/bin/sh\necho 'GPU 0: NVIDIA T4 (UUID: GPU-5a)'\n"})
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.usefixtures("listed")
def test_a_run_that_would_fail_fails_here(tmp_path: Path) -> None:
    """Neither devices that torch sees, nor a folder for the run, nor data."""
    if first_kind() != "cpu":
        pytest.skip("torch sees the devices of this host")
    (tmp_path / "file").touch()
    answer = doctor(
        "--directory", tmp_path / "file" / "run", "--preset", "ranked", "--data", tmp_path / "none"
    )
    assert answer.returncode == 1
    lines = answer.stdout.splitlines()
    failed = {line[12:28].strip(): place for place, line in enumerate(lines) if line.startswith("failed")}
    seen = f": nvidia-smi lists 1 device, torch {torch.__version__} sees none"
    assert lines[failed["devices"]].endswith(seen)
    assert lines[failed["devices"] + 1].endswith("use the processor with --device cpu")
    assert lines[failed["run directory"]].endswith("Not a directory")
    assert "data" in failed
    assert answer.stdout.count("remedy: ") >= len(failed)


@pytest.mark.usefixtures("listed")
def test_this_machine_is_looked_at_and_left_as_it_was(tmp_path: Path) -> None:
    """What it does is said at once, before anything that may hang. Its processors may be measured although
    there are devices."""
    answer = doctor("--directory", tmp_path / "run", "--device", "cpu", "--json")
    first, _, record = answer.stdout.partition("\n")
    assert first == (
        "aiperf-hpc doctor: checking hosts, devices, folders and data; waiting for answers for at most 300 s"
    )
    found = json.loads(record)
    outcomes = {check["name"]: check["outcome"] for check in found["checks"]}
    assert answer.returncode == (1 if "failed" in outcomes.values() else 0)
    assert [outcomes[name] for name in ("python", "torch", "devices", "data")] == ["ok"] * 4
    assert outcomes["run directory"] != "failed"  # it is as fast as the disk is
    assert len(outcomes) == len(found["checks"]) == sum(found["outcomes"].values())
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


def test_where_workers_pretend_neither_devices_nor_images_are_looked_at(tmp_path: Path) -> None:
    """There is no such folder of images."""
    words = ("--pretend", "laptop", "--preset", "ranked", "--data", tmp_path / "none")
    answer = doctor("--directory", tmp_path / "run", *words)
    assert answer.returncode == 0, answer.stdout
    assert answer.stdout.count("no worker trains") == 6
    assert "6 not checked: torch, devices, oneDNN, fused steps, backend, data\n" in answer.stdout
    assert "one process, 1 device, no launcher" in answer.stdout
