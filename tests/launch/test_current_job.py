"""The job around a process: its name, and how long it may still run."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from launch import SCHEDULERS
from launch.current_job import job_name, job_seconds_left
from launch.scheduler import Scheduler
from tests.launch.stand_ins import install
from tests.tables import ComesTo

OPENPBS = """Job Id: 7.head
    Job_Name = bench
    resources_used.walltime = 00:00:09
    job_state = R
    Resource_List.ncpus = 4
    Resource_List.walltime = {limit}
    stime = {began}
    Variable_List = PBS_O_HOME=/home/somebody,PBS_O_LANG=en,
\tPBS_O_QUEUE=batch
"""
TORQUE = """Job Id: 7.head
    Resource_List.walltime = {limit}
    start_time = {began}
    Walltime.Remaining = 1
"""


@pytest.mark.parametrize("job", ["", " ", "\udcff", "7.head", "-5", "9" * 5000])
@pytest.mark.parametrize("scheduler", SCHEDULERS.values(), ids=SCHEDULERS)
def test_an_odd_job_id_is_shown_and_an_empty_one_is_none(
    scheduler: Scheduler, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    environment = {scheduler.job_id: job, scheduler.element: job}
    name = job.strip().replace("\udcff", "\ufffd")
    assert job_name(environment) == (f"{scheduler.name} {name}" if name else "")
    assert job_seconds_left(environment, 0.0) is None


QSTAT = """<?xml version='1.0'?>
<job_info><queue_info>
  <job_list state="running">
    <JB_job_number>6</JB_job_number><JAT_start_time>{began}</JAT_start_time>
    <hard_request name="h_rt" resource_contribution="0.000000">1</hard_request>
  </job_list>
  <job_list state="running">
    <JB_job_number>7</JB_job_number><JAT_start_time>{began}</JAT_start_time>{task}
    <hard_request name="h_rt" resource_contribution="0.000000">{limit}</hard_request>
  </job_list>
</queue_info></job_info>
"""


def test_the_seconds_that_a_job_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    """What a scheduler states, or else its command prints; behind them, what the command was asked."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    asked = tmp_path / "asked"

    def left(environment: dict[str, str], command: str = "", answer: str = "", now: float = 0.0) -> object:
        asked.write_text("")
        install(tmp_path, dict.fromkeys(("squeue", "qstat", "bjobs"), "#!/bin/sh\nexit 1\n"))
        if command:
            install(tmp_path, {command: f'#!/bin/sh\necho "$@" > {asked}\ncat {tmp_path}/answer\n'})
        (tmp_path / "answer").write_text(answer, encoding="utf-8")
        return job_seconds_left(environment, now), asked.read_text().strip()

    names = {**vars(time), **globals(), "left": left, "AT": 1_800_000_000.0}
    comes_to_what_was_read("seconds_left.txt", names)
