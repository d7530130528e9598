"""The job around a process: its name, and how long it may still run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from aiperf.errors import ConfigError
from launch import SCHEDULERS
from launch.current_job import job_name, job_seconds_left
from launch.scheduler import Scheduler

Put = Callable[[str, str], None]

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


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Put:
    """Puts a command on the PATH that prints this, and writes down what it was asked."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def found(command: str, answer: str) -> None:
        (tmp_path / "answer").write_text(answer, encoding="utf-8")
        path = tmp_path / command
        path.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\ncat {tmp_path}/answer\n', encoding="utf-8")
        path.chmod(0o755)

    return found


@pytest.mark.parametrize(
    ("end", "now", "seconds"), [(5000, 1400.0, 3600.0), (365 * 86400, 5.0, None), (86400, 0.0, 86400.0)]
)
def test_slurm_states_the_end_or_one_too_far_away(end: int, now: float, seconds: float | None) -> None:
    assert (job_name({}), job_seconds_left({}, 0.0)) == ("", None)
    assert job_seconds_left({"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": str(end)}, now) == seconds


@pytest.mark.parametrize("end", ["Unknown", "", " ", "-5", "1e9", "\udcff", "9" * 5000, "\u00b2", "0"])
def test_an_end_that_is_no_time_to_come_is_asked_for(end: str, put: Put) -> None:
    put("squeue", "CLUSTER: big\n1:00:00\n")
    assert job_seconds_left({"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": end}, 1e9) == 3600


def test_an_end_that_has_passed_is_named_if_nobody_corrects_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError) as refused:
        job_seconds_left({"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": "1000"}, 4600.0)
    assert str(refused.value) == (
        "SLURM_JOB_END_TIME is 1000, 60 minutes ago by the clock of this host, and squeue does not answer; "
        "correct the clock, or unset SLURM_JOB_END_TIME and give the length with --minutes"
    )
    assert job_seconds_left({"SLURM_JOB_ID": "7"}, 4600.0) is None


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


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        ("59:30", 3570),
        ("CLUSTER: big\n1:00:00", 3600),
        ("2-01:00:00", 176400),
        ("UNLIMITED", None),
        ("", None),
        ("a notice", None),
        ("\u00b2:00", None),
        ("9" * 5000, None),
        ("1:1:1:1:1", None),
    ],
)
def test_an_older_slurm_is_asked(answer: str, seconds: float | None, put: Put, tmp_path: Path) -> None:
    put("squeue", f"{answer}\n")
    assert job_seconds_left({"SLURM_JOB_ID": "7"}, 0.0) == seconds
    assert (tmp_path / "asked").read_text() == "--noheader --job 7 --format %L\n"


@pytest.mark.parametrize("told", [OPENPBS, TORQUE])
@pytest.mark.parametrize(
    ("limit", "seconds"), [("01:00:00", 3500.0), ("120:00:00", 431900.0), ("3600", 3500.0), ("", None)]
)
def test_pbs_is_asked(told: str, limit: str, seconds: float | None, put: Put, tmp_path: Path) -> None:
    now = 1_800_000_000.0
    put("qstat", told.format(limit=limit, began=time.ctime(now - 100)))
    assert job_seconds_left({"PBS_JOBID": "7.head"}, now) == seconds
    assert (tmp_path / "asked").read_text() == "-f 7.head\n"


@pytest.mark.parametrize("began", ["", "soon", "2026-11-22 10:00"])
def test_a_job_of_pbs_that_has_not_begun_has_no_end(began: str, put: Put) -> None:
    put("qstat", OPENPBS.format(limit="01:00:00", began=began))
    assert job_seconds_left({"PBS_JOBID": "7.head"}, 0.0) is None


@pytest.mark.parametrize(
    ("answer", "seconds"), [("0:59 L", 3540.0), ("100:30 L", 361800.0), ("0:59 E", None), ("-", None)]
)
def test_lsf_is_asked_and_an_estimate_is_no_limit(
    answer: str, seconds: float | None, put: Put, tmp_path: Path
) -> None:
    put("bjobs", f"{answer}\n")
    assert job_seconds_left({"LSB_JOBID": "7", "LSB_JOBINDEX": "0"}, 0.0) == seconds
    assert (tmp_path / "asked").read_text() == "-noheader -o time_left 7\n"
    assert job_seconds_left({"LSB_JOBID": "7", "LSB_JOBINDEX": "4"}, 0.0) == seconds
    assert (tmp_path / "asked").read_text() == "-noheader -o time_left 7[4]\n"


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


@pytest.mark.parametrize(
    ("element", "task", "limit", "seconds"),
    [
        ("undefined", "", "3600", 3500.0),
        ("2", "<tasks>2</tasks>", "3600", 3500.0),
        ("3", "<tasks>2</tasks>", "3600", None),
        ("undefined", "", "", None),
        ("undefined", "", "INFINITY", None),
    ],
)
@pytest.mark.parametrize("began", ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S.131"])
def test_sge_is_asked(
    element: str, task: str, limit: str, seconds: float | None, began: str, put: Put, tmp_path: Path
) -> None:
    now = 1_800_000_000.0
    began = time.strftime(began, time.localtime(now - 100))
    put("qstat", QSTAT.format(task=task, limit=limit, began=began))
    environment = {"JOB_ID": "7", "SGE_TASK_ID": element}
    assert job_seconds_left(environment, now) == seconds
    assert (tmp_path / "asked").read_text() == "-r -xml\n"


def test_a_job_id_of_another_program_is_no_job_of_sge() -> None:
    assert job_name({"JOB_ID": "7"}) == ""
    assert job_name({"JOB_ID": "7", "SGE_TASK_ID": "undefined"}) == "SGE 7"
