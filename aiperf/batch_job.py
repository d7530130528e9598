"""How long the batch job around this process may still run."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Mapping

MARGIN_SECONDS = 300.0
"""For initialisation before the span, the test and the summary after it. The batch scripts ask for a warning
two minutes before the limit, which Slurm may give a minute early: a span that fits must not hear it."""


UNLIMITED_SECONDS = 360 * 86400.0  # Slurm lets a job without a limit end in a year (slurmctld/job_mgr.c)


def job_seconds_left(environment: Mapping[str, str], now: float) -> float | None:
    """Seconds to the end of the job; None outside of one, or where its limit cannot be learnt.

    `now` is the time of day in seconds since 1970. Where a scheduler's command is not on this node, the
    preset's own limit holds, and is shown.
    """
    for variable, (_, left) in SCHEDULERS.items():
        if variable in environment:
            return left(environment, now)
    return None


def job_name(environment: Mapping[str, str]) -> str:
    """The scheduler and its number of the job, "Slurm 4711"; empty outside of one."""
    found = (
        f"{name} {environment[variable]}"
        for variable, (name, _) in SCHEDULERS.items()
        if variable in environment
    )
    return next(found, "")


def _slurm(environment: Mapping[str, str], now: float) -> float | None:
    """Stated in the environment since Slurm 23.02 (sbatch(1), SLURM_JOB_END_TIME); older ones are asked."""
    if end := environment.get("SLURM_JOB_END_TIME"):
        left = float(end) - now
        return left if left < UNLIMITED_SECONDS else None
    return _seconds(_answer("squeue", "--noheader", "--job", environment["SLURM_JOB_ID"], "--format", "%L"))


def _pbs(environment: Mapping[str, str], now: float) -> float | None:
    """The limit less the time since the job began: OpenPBS says stime, Torque start_time (qstat(1B))."""
    answer = _answer("qstat", "-f", environment["PBS_JOBID"])
    limit = re.search(r"^\s*Resource_List\.walltime = (\S+)$", answer, re.MULTILINE)
    began = re.search(r"^\s*(?:stime|start_time) = (.+)$", answer, re.MULTILINE)
    seconds = _seconds(limit[1]) if limit else None
    if seconds is None or began is None:
        return None
    try:
        return time.mktime(time.strptime(began[1].strip())) + seconds - now
    except ValueError:  # not as ctime(3) writes it
        return None


def _lsf(environment: Mapping[str, str], now: float) -> float | None:
    """Hours and minutes, and L where they are a limit, not somebody's estimate (bjobs(1), -WL)."""
    element = environment.get("LSB_JOBINDEX", "0")
    job = environment["LSB_JOBID"] + f"[{element}]" * (element != "0")
    left = re.fullmatch(r"(\d+:\d+) L", _answer("bjobs", "-noheader", "-o", "time_left", job))
    return _seconds(f"{left[1]}:00") if left else None


def _answer(*command: str) -> str:
    """What the command prints; nothing where it is not on this node, fails or hangs."""
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return found.stdout.strip()


def _seconds(text: str) -> float | None:
    """Days-hours:minutes:seconds, of which only the last must be there."""
    days, _, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdigit() for part in parts) or not (days.isdigit() or not days):
        return None  # UNLIMITED, INVALID, NOT_SET
    seconds = 0
    for part in parts:
        seconds = 60 * seconds + int(part)
    return float(seconds + 86400 * int(days or 0))


# The variable that holds the job's number, the scheduler's name, and how it tells what time is left.
SCHEDULERS = {
    "SLURM_JOB_ID": ("Slurm", _slurm),
    "PBS_JOBID": ("PBS", _pbs),
    "LSB_JOBID": ("LSF", _lsf),
}
