"""The scheduler's job around this process: its name, and how long it may still run."""

from __future__ import annotations

from collections.abc import Mapping

from aiperf.host.programs import ToolFailed, ask
from launch import SCHEDULERS
from launch.scheduler import Scheduler

ANSWER_SECONDS = 10
"""Most seconds that a scheduler's command may take; afterwards the job has no known end."""


def job_name(environment: Mapping[str, str]) -> str:
    """The scheduler and its number of the job, "Slurm 4711"; empty outside of one. The
    journal records it."""
    scheduler = _scheduler(environment)
    return f"{scheduler.name} {scheduler.current(environment)}" if scheduler else ""


def job_seconds_left(environment: Mapping[str, str], now: float) -> float | None:
    """Seconds to the end of the job; None outside of one, or where its limit cannot be learnt.

    `now` is the time of day in seconds since 1970. Where a scheduler's command is not on this node, the
    preset's own limit holds, and is shown. Raises ConfigError for an end that has passed, and that the
    scheduler does not correct.
    """
    scheduler = _scheduler(environment)
    return scheduler.seconds_left(environment, now, _answer) if scheduler else None


def _scheduler(environment: Mapping[str, str]) -> Scheduler | None:
    """The scheduler of the job around this process; None outside of one."""
    return next((each for each in SCHEDULERS.values() if each.current(environment)), None)


def _answer(*command: str) -> str:
    """What the command prints; nothing if it is not on this node, fails or hangs. A job script may run on a
    node from which the scheduler cannot be asked."""
    try:
        answer = ask(command, ANSWER_SECONDS)
    except ToolFailed:
        return ""
    return answer.output if answer.code == 0 else ""
