"""`aiperf-hpc doctor` as a person types it, on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(600)]


def doctor(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "aiperf", "doctor", *map(str, words), "--wait-seconds", "300"]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_this_machine_is_looked_at_and_left_as_it_was(tmp_path: Path) -> None:
    began = time.monotonic()
    answer = doctor("--directory", tmp_path / "run", "--device", "cpu", "--json")
    print(f"it took {time.monotonic() - began:.1f} s")
    found = json.loads(answer.stdout)
    outcomes = {check["name"]: check["outcome"] for check in found["checks"]}
    assert answer.returncode == (1 if "failed" in outcomes.values() else 0), answer.stderr
    assert {name: outcomes[name] for name in ("python", "torch", "devices", "run directory", "data")} == {
        "python": "ok",
        "torch": "ok",
        "devices": "ok",
        "run directory": outcomes["run directory"],  # as fast as the disk is
        "data": "ok",
    }
    assert outcomes["run directory"] != "failed"
    assert len(outcomes) == len(found["checks"]) == sum(found["outcomes"].values())
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_would_fail_fails_here(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    data = ("--preset", "ranked", "--data", tmp_path / "none")
    answer = doctor("--directory", tmp_path / "file" / "run", "--device", "cpu", *data)
    assert answer.returncode == 1
    failed = [line for line in answer.stdout.splitlines() if line.startswith("failed")]
    assert any("run directory" in line and "Not a directory" in line for line in failed)
    assert any(line.split()[1] == "data" for line in failed)
    assert answer.stdout.count("remedy: ") >= len(failed)
