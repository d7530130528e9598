"""How long the job around a process may still run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aiperf.scheduler import job_seconds_left


def test_outside_of_a_job_there_is_no_limit() -> None:
    assert job_seconds_left({}, 0.0) is None


def test_slurm_states_the_end() -> None:
    assert job_seconds_left({"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": "5000"}, 1400.0) == 3600.0


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [("59:30", 3570), ("1:00:00", 3600), ("2-01:00:00", 176400), ("UNLIMITED", None), ("INVALID", None)],
)
def test_an_older_slurm_is_asked(
    answer: str, seconds: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    squeue = tmp_path / "squeue"
    squeue.write_text(f'#!/bin/sh\n[ "$3" = 7 ] && echo "{answer}"\n', encoding="utf-8")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert job_seconds_left({"SLURM_JOB_ID": "7"}, 0.0) == seconds


def test_without_squeue_the_limit_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert job_seconds_left({"SLURM_JOB_ID": "7"}, 0.0) is None


def test_a_job_without_a_limit_has_none() -> None:
    assert job_seconds_left({"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": str(365 * 86400)}, 5.0) is None
    assert job_seconds_left({"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": str(30 * 86400)}, 0.0) == 30 * 86400
