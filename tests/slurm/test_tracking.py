"""A warning under each way in which Slurm may track the processes of a job, which decides whom it reaches."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from aiperf.journal.run_files import RunFiles
from aiperf.rules.verdict import judge
from aiperf.wire.trial import State
from tests.mpi.jobs import TINY, endings
from tests.slurm.cluster import Cluster, Job, cluster_of

pytestmark = [pytest.mark.slurm, pytest.mark.torch, pytest.mark.timeout(900)]

MINUTES = 0.3


@pytest.fixture(scope="module")
def by_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_of(2, tmp_path_factory.mktemp("tracking"), "pgid") as started:
        yield started


WARNED = {"steps": (), "full": ("--full",)}
"""Whom `scancel` warns: the processes of the job's steps, and with --full its script too."""


def test_a_warned_job_loses_no_trial_in_flight_is_queued_again_and_goes_on(
    cluster: Cluster, by_group: Cluster
) -> None:
    """A job for each way of warning under each of tracking: by descent, as the cluster of all tests tracks,
    and by process group. All are there at once, because they mostly wait."""
    jobs = [(submitted(each), whom) for each in (cluster, by_group) for whom in WARNED.values()]
    with ThreadPoolExecutor(len(jobs)) as threads:
        for job in threads.map(lambda each: warned(*each), jobs):
            check(job)


def submitted(cluster: Cluster) -> Job:
    long = cluster.work / "long.toml"  # a trial longer than the run, so that one is always in flight
    long.write_text(TINY.read_text().replace("epochs = [4]", "epochs = [2000]"))
    script = cluster.edited("one_node.sbatch", nodes=1, devices=1)
    return cluster.submit(script, "--preset", long, "--minutes", MINUTES)


def warned(job: Job, whom: tuple[str, ...]) -> Job:
    """The job at its end, after it was warned in its trials."""
    job.wait_for('"type":"Closed"', count=2)
    job.cluster.run("scancel", "--signal=USR1", *whom, job.id)
    assert job.end() == "COMPLETED", f"{whom}: {job.told_so_far()}"
    return job


def check(job: Job) -> None:
    told = job.told()
    assert endings(told)[0] == "terminated"
    # Those that were prepared and never began are given out again.
    states = {each.state for each in told.attempts if each.leg.index == 0 and each.began is not None}
    assert told.legs[0].losses == []
    assert State.STOPPED in states
    assert State.LOST not in states
    assert job.field("Restarts") == "1"
    assert "stopped in time" in job.output
    assert (told.num_legs, told.span_seconds) == pytest.approx((2, 60 * MINUTES), abs=0.5)
    assert told.tested is not None
    assert judge(told, RunFiles(job.directory)).valid
