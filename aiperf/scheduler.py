"""How long the batch job around this process may still run."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

__all__ = ["MARGIN_SECONDS", "job_seconds_left"]

MARGIN_SECONDS = 300.0
"""For initialisation before the span, the test and the summary after it. The batch scripts ask for a warning
two minutes before the limit, which Slurm may give a minute early: a span that fits must not hear it."""


UNLIMITED_SECONDS = 360 * 86400.0  # Slurm lets a job without a limit end in a year (slurmctld/job_mgr.c)


def job_seconds_left(environment: Mapping[str, str], now: float) -> float | None:
    """Seconds to the end of the job; None outside of one, or where its limit cannot be learnt.

    `now` is the time of day in seconds since 1970. Slurm states the end in the job's environment since
    23.02 (sbatch(1), SLURM_JOB_END_TIME); older ones are asked.
    """
    if "SLURM_JOB_ID" not in environment:
        return None
    if end := environment.get("SLURM_JOB_END_TIME"):
        left = float(end) - now
        return left if left < UNLIMITED_SECONDS else None
    command = ["squeue", "--noheader", "--job", environment["SLURM_JOB_ID"], "--format", "%L"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None  # no squeue on this node: the preset's own limit holds, and is shown
    return _seconds(answer.stdout.strip())


def _seconds(text: str) -> float | None:
    """Slurm's days-hours:minutes:seconds, of which only the last two must be there."""
    days, _, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdigit() for part in parts) or not (days.isdigit() or not days):
        return None  # UNLIMITED, INVALID, NOT_SET
    seconds = 0
    for part in parts:
        seconds = 60 * seconds + int(part)
    return float(seconds + 86400 * int(days or 0))
