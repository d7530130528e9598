"""The words of each scheduler's commands, and how its answers are read; its scripts are compared whole."""

from __future__ import annotations

import json
import shlex

import pytest

from launch import SCHEDULERS
from launch.scheduler import JobState, Scheduler
from launch.site import Mpi
from launch.slurm import SRUN

PENDING, RUNNING, GONE = JobState.PENDING, JobState.RUNNING, JobState.GONE


@pytest.mark.parametrize("scheduler", SCHEDULERS.values(), ids=SCHEDULERS)
def test_a_foreign_answer_is_refused(scheduler: Scheduler) -> None:
    with pytest.raises(ValueError, match="did not print a job id"):
        scheduler.submitted("error: no such queue")


def test_a_dependency_waits_for_all() -> None:
    assert {name: shlex.join(each.submit(["1", "2"])) for name, each in SCHEDULERS.items()} == {
        "slurm": "sbatch --parsable --dependency=afterany:1:2",
        "pbs": "qsub -W depend=afterany:1:2",
        "lsf": "bsub -w 'ended(1) && ended(2)'",
    }


def test_job_ids() -> None:
    assert SCHEDULERS["slurm"].submitted("4711\n") == "4711"
    assert SCHEDULERS["slurm"].submitted("4711;cluster\n") == "4711"
    assert SCHEDULERS["pbs"].submitted("4711.server.org\n") == "4711.server.org"
    assert SCHEDULERS["pbs"].submitted("4711[].server\n") == "4711[].server"
    assert SCHEDULERS["lsf"].submitted("Job <4711> is submitted to queue <normal>.\n") == "4711"


def test_states() -> None:
    slurm = "1 PENDING\n2 RUNNING\n3 COMPLETED\n4 REQUEUE_HOLD\n5 CONFIGURING\n6 NODE_FAIL\n"
    assert SCHEDULERS["slurm"].states(slurm) == dict(
        zip("123456", (PENDING, RUNNING, GONE, PENDING, PENDING, GONE))
    )
    pbs = json.dumps(
        {"Jobs": {"1.s": {"job_state": "Q"}, "2.s": {"job_state": "R"}, "3.s": {"job_state": "F"}}}
    )
    assert SCHEDULERS["pbs"].states(pbs) == {"1.s": PENDING, "2.s": RUNNING, "3.s": GONE}
    records = [{"JOBID": "1", "STAT": "PEND"}, {"JOBID": "2", "STAT": "RUN"}, {"JOBID": "3", "STAT": "EXIT"}]
    assert SCHEDULERS["lsf"].states(json.dumps({"RECORDS": records})) == {
        "1": PENDING,
        "2": RUNNING,
        "3": GONE,
    }


def test_srun_has_the_plugin_of_the_site() -> None:
    assert "--mpi=pmi2" in SRUN.ranks(Mpi(plugin="pmi2"))
