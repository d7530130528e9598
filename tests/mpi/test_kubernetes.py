"""The manifest for Kubernetes, carried out in pods on one machine: warned in the middle, and continued."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from aiperf.journal.file import read_journal
from aiperf.journal.replay import Replay, replay
from aiperf.journal.run_files import RunFiles
from aiperf.journal.words import TERMINATED
from launch import SCHEDULERS
from launch.job import Job
from launch.script import script_text
from launch.site import Devices, Mpi, Site
from launch.site import Pods as PodsOfSite
from tests.house.tree import ROOT
from tests.mpi.jobs import QUICK, TINY
from tests.mpi.pods import Pods, pods
from tests.mpi.test_signals import CONTINUE

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(900)]

SPAN_SECONDS = 12.0


def manifest(directory: Path) -> str:
    site = Site(
        devices=Devices(per_node=1, request="none"),
        mpi=Mpi("mpiexec"),
        kubernetes=PodsOfSite("aiperf-hpc:0.1", "data", mount=str(directory)),
        # What else would disturb other tests: each rank takes all cores.
        environment={"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}:{QUICK}"},
    )
    options = ("--preset", str(TINY), "--device", "cpu", "--devices-per-trial", "1")
    return script_text(SCHEDULERS["kubernetes"], site, Job(2, SPAN_SECONDS / 3600, options=options))


def run_of(cluster: Pods, directory: Path) -> Replay:
    return replay(read_journal(RunFiles(directory / f"runs/aiperf-hpc-{cluster.job}").journal))


def wait_until_released(cluster: Pods, directory: Path) -> None:
    journal = RunFiles(directory / f"runs/aiperf-hpc-{cluster.job}").journal
    until = time.monotonic() + 300.0
    while not (journal.exists() and '"Released"' in journal.read_text(encoding="utf-8")):
        assert cluster.processes[cluster.launcher].poll() is None, cluster.text(cluster.launcher)
        assert time.monotonic() < until, cluster.text(cluster.launcher)
        time.sleep(0.2)


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_a_job_is_preempted_in_all_its_pods_at_once_and_continues(tmp_path: Path) -> None:
    assert shutil.which("sshd", path="/usr/sbin"), "install openssh-server"
    with pods(tmp_path, manifest(tmp_path)) as cluster:
        for pod in (*cluster.workers, cluster.launcher):
            cluster.start(pod)
        wait_until_released(cluster, tmp_path)
        time.sleep(2)
        for pod in (*cluster.workers, cluster.launcher):
            cluster.terminate(pod)
        assert cluster.end(cluster.launcher) == CONTINUE, cluster.text(cluster.launcher)
        assert [cluster.end(worker) for worker in cluster.workers] == [0, 0]
        (leg,) = run_of(cluster, tmp_path).legs
        assert leg.ended is not None
        assert leg.ended.reason == TERMINATED
        # Admitted again: the launcher may be there first.
        cluster.start(cluster.launcher)
        time.sleep(1)
        for worker in cluster.workers:
            cluster.start(worker)
        assert cluster.end(cluster.launcher) == 0, cluster.text(cluster.launcher)
        assert "VALID" in cluster.text(cluster.launcher)
        run = run_of(cluster, tmp_path)
        assert run.num_legs == 2
        assert run.span_seconds == pytest.approx(SPAN_SECONDS, abs=0.1)
        hosts = {rank: ready.host for rank, ready in run.leg.devices.items()}
        assert hosts == {1: cluster.workers[0], 2: cluster.workers[1]}
        for worker in cluster.workers:
            cluster.terminate(worker)
            assert cluster.end(worker, seconds=20.0) == 0
