"""Jobs on a real Slurm: the shipped scripts, and what becomes of a job that is warned or loses a node."""

from __future__ import annotations

import csv
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.rules.verdict import judge
from aiperf.score.credit import credit
from launch.slurm import SRUN
from tests.mpi.jobs import TINY, TINY_TEXT, endings
from tests.slurm import fence
from tests.slurm.cluster import ENDED, Cluster, Job

pytestmark = [pytest.mark.slurm, pytest.mark.torch, pytest.mark.timeout(1500)]

SHORT = ("--preset", TINY, "--minutes")
SHORT_TEXT = ("--preset", TINY_TEXT, "--minutes")


def finished(job: Job) -> Replay:
    """The run of a job that has ended well."""
    assert job.end() == "COMPLETED", job.output
    told = job.told()
    verdict = judge(told, RunFiles(job.directory))
    assert verdict.valid, verdict
    assert verdict.run_class.value == "smoke"
    assert told.tested is not None
    return told


def test_no_rank_goes_on_before_the_last_has_come(cluster: Cluster) -> None:
    """As they would by Slurm's tree: MPI_Init dies of a message that a rank which is ahead sends into it."""
    exported = [f"{name}={value}" for name, value in SRUN.environment.items()]
    ranks = ("srun", "--mpi=pmix", "--nodes=3", "--ntasks=3", sys.executable, fence.__file__)
    times = [[*map(float, line.split()[1:])] for line in cluster.run("env", *exported, *ranks).splitlines()]
    assert len(times) == 3
    for number in range(0, 2 * fence.FENCES, 2):
        assert max(came[number] for came in times) < min(went[number + 1] for went in times), times


def test_a_job_at_its_time_limit_goes_on_and_a_cancelled_one_does_not(cluster: Cluster) -> None:
    """Slurm compares jobs' times with their limits twice a minute. Cancelled, the run stops in time, too, and
    Slurm would take the job back if it were asked to queue it again."""
    job = cluster.submit(cluster.edited("one_node.sbatch", nodes=1, devices=1), *SHORT, 5)
    job.wait_for('"type":"Released"')
    hours, minutes, _ = map(int, job.field("RunTime").split(":"))
    cluster.run("scontrol", "update", f"JobId={job.id}", f"TimeLimit={60 * hours + minutes + 2}")
    job.wait_for('"reason":"terminated"')
    assert job.wait_for_state("PENDING", *ENDED) == "PENDING", job.told_so_far()
    cluster.run("scontrol", "update", f"JobId={job.id}", "TimeLimit=30")
    assert job.wait_for_state("RUNNING", *ENDED) == "RUNNING", job.told_so_far()
    job.wait_for('"type":"Released"', count=2)
    cluster.run("scancel", job.id)
    assert job.wait_for_state("PENDING", "REQUEUED", *ENDED) == "CANCELLED", job.output
    assert job.field("Restarts") == "1"
    assert endings(job.told()) == ["terminated", "terminated"]


def test_the_shipped_script_has_a_group_on_each_node_and_goes_on_after_one_is_lost(cluster: Cluster) -> None:
    """Four nodes have the jobs of `weak_scaling.sbatch`."""
    job = cluster.submit(cluster.edited("multi_node.sbatch", nodes=2, devices=2), *SHORT, 0.4)
    job.wait_for('"type":"Ended"', count=2)
    before = len(job.told().arrivals)
    assert {event.ready.host for event in job.told().ranks} == {"node1", "node2"}
    cluster.lose("node2")
    told = finished(job)
    assert job.field("Restarts") == "1"
    assert [leg.began.groups for leg in told.legs] == [((1, 2), (3, 4))] * 2
    assert "VALID, class smoke" in job.output
    assert "4 ranks on 2 hosts, and the master on node1" in job.output
    assert "done: runs/aiperf-hpc" in job.output
    assert len(told.arrivals) > before
    given = credit(told)  # what was in flight is done again; its segments are credited the first time only
    counted = [v.segment for a in told.attempts for v in a.validations if given.has(a, v)]
    keys = [(segment.trial, segment.index) for segment in counted]
    assert len(keys) == len(set(keys)), "a segment was counted twice"


def test_weak_scaling_in_one_job_ends_in_its_table(cluster: Cluster) -> None:
    script = cluster.edited("weak_scaling.sbatch", nodes=4, devices=1)
    job = cluster.submit(script, *SHORT, 0.1)
    assert job.end() == "COMPLETED", job.output
    table = (job.directory / "scaling" / "scaling.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(table.splitlines()))
    assert [(row["nodes"], row["devices"]) for row in rows] == [("1", "1"), ("2", "2"), ("4", "4")]
    assert all(row["verdict"].startswith("VALID") for row in rows)
    assert f"done: {Path('runs') / job.directory.name}" in job.output


def test_two_jobs_on_the_same_nodes_do_not_disturb_each_other(cluster: Cluster) -> None:
    """One of images, one of text."""
    script = cluster.edited("multi_node.sbatch", nodes=2, devices=1)
    text = script.read_text(encoding="utf-8").replace("--exclusive --mem=0", "--cpus-per-task=4 --mem=1000")
    shared = script.with_name("shared.sbatch")
    shared.write_text(text.replace("--partition=main", "--partition=main --nodelist=node1,node2"))
    tasks = (SHORT, SHORT_TEXT)
    jobs = [cluster.submit(shared, *short, 0.15, "--devices-per-trial", 1) for short in tasks]
    found = [finished(job) for job in jobs]
    spans = [(job.field("StartTime"), job.field("EndTime")) for job in jobs]
    assert all(later[0] < earlier[1] for earlier, later in pairwise(spans)), f"not at once: {spans}"
    assert [{event.ready.host for event in told.ranks} for told in found] == [{"node1", "node2"}] * 2
