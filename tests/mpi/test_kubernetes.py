"""The manifests for Kubernetes, carried out in pods on one machine: warned in the middle, and continued."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from aiperf.journal.run_files import RunFiles
from aiperf.journal.words import TERMINATED
from aiperf.rules.verdict import judge
from launch import FORMS, SCHEDULERS
from launch.indexed_job import LOST
from launch.job import Job
from launch.pods import AGAIN
from launch.scheduler import Scheduler
from launch.script import script_text
from launch.site import Devices, Mpi, Site
from launch.site import Pods as PodsOfSite
from tests.house.tree import ROOT
from tests.mpi.jobs import QUICK, TINY, endings, told
from tests.mpi.pods import USER, Pods, indexed_pods, pods
from tests.mpi.switch import as_root
from tests.mpi.test_signals import CONTINUE

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(900), as_root]

SPAN_SECONDS = 12.0
SHORT_SECONDS = 14.0
FOLDER = "/mnt"
"""Where the claim of an Indexed Job is mounted: a folder that every machine has."""


def manifest(form: Scheduler, mount: str, nodes: int, seconds: float, secret: str = "") -> str:
    site = Site(
        devices=Devices(per_node=1, request="none"),
        mpi=Mpi("mpiexec"),
        kubernetes=PodsOfSite("aiperf-hpc:0.1", "data", mount=mount),
        # What else would disturb other tests: each rank takes all cores.
        environment={"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}:{QUICK}"},
        doctor_seconds=300.0,
    )
    options = ("--preset", str(TINY), "--device", "cpu", "--devices-per-trial", "1")
    return script_text(form, site, Job(nodes, seconds / 3600, options=options, secret=secret))


def files_of(cluster: Pods, directory: Path) -> RunFiles:
    return RunFiles(directory / f"runs/aiperf-hpc-{cluster.job}")


def wait_until_released(cluster: Pods, journal: Path, pod: str, times: int = 1) -> None:
    """Until the clock of the run has been started so often; `pod` has its master."""
    until = time.monotonic() + 300.0
    while not (journal.exists() and journal.read_text(encoding="utf-8").count('"Released"') >= times):
        assert cluster.processes[pod].poll() is None, cluster.text(pod)
        assert time.monotonic() < until, cluster.text(pod)
        time.sleep(0.2)


@pytest.mark.parametrize(
    ("form", "ended"),
    [
        (SCHEDULERS["kubernetes"], 0),
        # Else the worker's job would be complete.
        pytest.param(FORMS["kubernetes"]["trainjob"], AGAIN, marks=pytest.mark.slow),
    ],
    ids=["MPIJob", "TrainJob"],
)
def test_a_job_is_preempted_in_all_its_pods_at_once_and_continues(
    form: Scheduler, ended: int, tmp_path: Path
) -> None:
    """`ended`: the exit code of a worker."""
    assert shutil.which("sshd", path="/usr/sbin"), "install openssh-server"
    text = manifest(form, str(tmp_path), nodes=2, seconds=SPAN_SECONDS)
    with pods(tmp_path, text) as cluster:
        files = files_of(cluster, tmp_path)
        for pod in cluster.pods:
            cluster.start(pod)
        wait_until_released(cluster, files.journal, cluster.launcher)
        time.sleep(2)
        for pod in cluster.pods:
            cluster.terminate(pod)
        assert cluster.end(cluster.launcher) == CONTINUE, cluster.text(cluster.launcher)
        assert [cluster.end(worker) for worker in cluster.workers] == [ended, ended]
        assert endings(told(files.directory)) == [TERMINATED]
        # Admitted again: the launcher may be there first.
        cluster.start(cluster.launcher)
        time.sleep(1)
        for worker in cluster.workers:
            cluster.start(worker)
        assert cluster.end(cluster.launcher) == 0, cluster.text(cluster.launcher)
        assert "VALID" in cluster.text(cluster.launcher)
        run = told(files.directory)
        assert run.num_legs == 2
        assert run.span_seconds == pytest.approx(SPAN_SECONDS, abs=0.1)
        hosts = {rank: ready.host for rank, ready in run.leg.devices.items()}
        assert hosts == {1: cluster.workers[0], 2: cluster.workers[1]}
        for worker in cluster.workers:
            cluster.terminate(worker)
            assert cluster.end(worker, seconds=20.0) == ended


def test_a_job_without_mpi_is_preempted_and_continues_and_survives_a_rank(tmp_path: Path) -> None:
    """As a user without a name, without sshd and MPI."""
    form, claim = FORMS["kubernetes"]["no-mpi"], tmp_path / "claim"
    text = manifest(form, FOLDER, nodes=3, seconds=SHORT_SECONDS, secret="not known to anybody else")
    with indexed_pods(tmp_path, text) as cluster:
        files, (first, second, third) = files_of(cluster, claim), cluster.pods
        for pod in (third, first, second):
            cluster.start(pod)
        wait_until_released(cluster, files.journal, first)
        assert cluster.listening() == [], "all ranks have connected"
        time.sleep(2)
        for pod in cluster.pods:
            cluster.terminate(pod)
        assert [cluster.end(pod) for pod in cluster.pods] == [AGAIN] * 3, cluster.text(first)
        for pod in cluster.pods:
            cluster.start(pod)
        wait_until_released(cluster, files.journal, first, times=2)
        cluster.rank(third, 3).kill()
        assert cluster.end(third) == LOST, cluster.text(third)
        assert cluster.end(first) == 0, cluster.text(first)
        assert cluster.processes[second].poll() is None, "it waits until the first pod has succeeded"
        cluster.terminate(second)
        assert cluster.end(second, seconds=20.0) == 0
        assert cluster.listening() == []
        run = told(files.directory)
    assert judge(run, files).valid
    assert endings(run) == [TERMINATED, "deadline"]
    assert [loss.reason for loss in run.leg.losses] == [f"rank 3 on {third} is dead"]
    assert run.span_seconds == pytest.approx(SHORT_SECONDS, abs=0.1)
    state = files.journal.stat()
    assert (state.st_uid, state.st_gid) == (USER, 0)
