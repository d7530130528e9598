"""A warning under each way in which Slurm may track the processes of a job, which decides whom it reaches."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aiperf.journal.run_files import RunFiles
from aiperf.rules.verdict import judge
from aiperf.wire.trial import State
from tests.mpi.jobs import TINY
from tests.slurm.cluster import Cluster, Job, cluster_of

pytestmark = [pytest.mark.slurm, pytest.mark.torch, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def by_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_of(2, tmp_path_factory.mktemp("tracking"), "pgid") as started:
        yield started


@pytest.fixture(params=["cluster", "by_group"])
def tracking(request: pytest.FixtureRequest) -> Cluster:
    """By descent, as the cluster of all tests does, or by process group."""
    chosen: Cluster = request.getfixturevalue(request.param)
    return chosen


WARNED = {"steps": (), "full": ("--full",)}
"""Whom `scancel` warns: the processes of the job's steps, and with --full its script too."""


def test_a_warned_job_loses_no_trial_in_flight_is_queued_again_and_goes_on(tracking: Cluster) -> None:
    """A job for each way of warning, both at once, because they mostly wait."""
    long = tracking.work / "long.toml"  # a trial longer than the run, so that one is always in flight
    long.write_text(TINY.read_text().replace("epochs = [4]", "epochs = [2000]"))
    script = tracking.edited("one_node.sbatch", nodes=1, devices=2)
    with ThreadPoolExecutor() as jobs:
        for job in jobs.map(lambda whom: warned(tracking, script, long, whom), WARNED.values()):
            check(job)


def warned(cluster: Cluster, script: Path, preset: Path, whom: tuple[str, ...]) -> Job:
    """A job that was warned in its trials, at its end."""
    job = cluster.submit(script, "--preset", preset, "--minutes", 0.3, "--devices-per-trial", 1)
    job.wait_for('"type":"Closed"', count=2)
    cluster.run("scancel", "--signal=USR1", *whom, job.id)
    assert job.end() == "COMPLETED", f"{whom}: {job.told_so_far()}"
    return job


def check(job: Job) -> None:
    told = job.told()
    assert told.legs[0].ended is not None
    assert told.legs[0].ended.reason == "terminated"
    # Those that were prepared and never began are given out again.
    states = [attempt.state for attempt in told.attempts if attempt.leg.index == 0 and attempt.began]
    assert told.legs[0].losses == []
    assert State.STOPPED in states
    assert State.LOST not in states
    assert job.field("Restarts") == "1"
    assert "stopped in time" in job.output
    assert (told.num_legs, told.span_seconds) == pytest.approx((2, 18), abs=0.5)
    assert told.tested is not None
    assert judge(told, RunFiles(job.directory)).valid
