"""What every scheduler keeps to, and how each one's answers are read."""

from __future__ import annotations

import json

import pytest

from launch import SCHEDULERS
from launch.job import Job
from launch.launchers import LAUNCHERS
from launch.scheduler import JobState, Scheduler
from launch.site import Mpi
from launch.slurm import SRUN
from tests.launch.golden import SITE

PENDING, RUNNING, GONE = JobState.PENDING, JobState.RUNNING, JobState.GONE


@pytest.mark.parametrize("scheduler", SCHEDULERS.values(), ids=SCHEDULERS)
class TestEveryScheduler:
    def test_directives_are_comments_of_one_mark(self, scheduler: Scheduler) -> None:
        for line in scheduler.directives(SITE, Job(2, 1, repeat=2)):
            assert line.startswith((f"{scheduler.mark} -", "# EDIT "))

    def test_size_length_and_name_are_said(self, scheduler: Scheduler) -> None:
        text = "\n".join(scheduler.directives(SITE, Job(7, 1, "one-name")))
        assert "one-name" in text
        assert "1:30" in text or "5400" in text
        assert "ACCOUNT" in text

    def test_a_dependency_waits_for_all(self, scheduler: Scheduler) -> None:
        words = scheduler.submit(["11", "12"])
        assert len(words) > len(scheduler.submit())
        assert all(job in " ".join(words) for job in ("11", "12"))

    def test_a_foreign_answer_is_refused(self, scheduler: Scheduler) -> None:
        with pytest.raises(ValueError, match="no job id"):
            scheduler.submitted("error: no such queue")


def test_commands_whole() -> None:
    assert SCHEDULERS["slurm"].submit(["1", "2"]) == ["sbatch", "--parsable", "--dependency=afterany:1:2"]
    assert SCHEDULERS["pbs"].submit(["1.s"]) == ["qsub", "-W", "depend=afterany:1.s"]
    assert SCHEDULERS["lsf"].submit(["1", "2"]) == ["bsub", "-w", "ended(1) && ended(2)"]


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


def test_launchers_whole() -> None:
    count = '"$(wc -l <"$hosts")"'
    launchers = (SRUN, *LAUNCHERS)
    assert [" ".join(launcher.ranks(Mpi(plugin="pmi2"))) for launcher in launchers] == [
        (
            f'env SLURM_HOSTFILE="$hosts" srun --mpi=pmi2 --nodes="$nodes" --ntasks={count} '
            '--distribution=arbitrary --cpus-per-task="$cores"'
        ),
        f'mpiexec -n {count} --hostfile "$hosts"',
        f'mpirun -n {count} --hostfile "$hosts"',
        (
            'bash -c \'trap "" USR1; exec "$@"\' ranks torchrun --standalone '
            "--nproc-per-node=$((devices + 1)) --no-python"
        ),
    ]
    assert [" ".join(launcher.once_a_node) for launcher in launchers] == [
        'srun --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1',
        'mpiexec -n "$nodes" --hostfile "$hosts.once"',
        'mpirun -n "$nodes" --hostfile "$hosts.once"',
        "",
    ]
