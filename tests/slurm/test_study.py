"""A scaling study on a real Slurm, from a site file that asks it to the table; and what a new user types."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import time
from pathlib import Path

import pytest

from launch.site import load_site
from tests.mpi.jobs import TINY
from tests.slurm.cluster import BIN, WAIT_SECONDS, Cluster, Job

pytestmark = [pytest.mark.slurm, pytest.mark.torch, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Path:
    """As `init-site` found it; one rank on a node, for the sake of this machine."""
    path = cluster.work / "site.toml"
    cluster.aiperf("launch", "init-site")
    found = load_site(path)
    assert (found.queue.partition, found.devices.per_node, found.devices.request) == ("main", 2, "gpus")
    assert (found.mpi.launcher, found.mpi.plugin) == ("srun", "pmix")
    text = path.read_text(encoding="utf-8").replace("per_node = 2", "per_node = 1")
    path.write_text(re.sub(r"setup = .*", f"setup = ['export PATH=\"{BIN}:$PATH\"']", text), encoding="utf-8")
    return path


def status(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    command = [BIN / "aiperf-hpc", "launch", "status", "study", *words]
    environment = dict(cluster.environment)
    return subprocess.run(command, cwd=cluster.work, env=environment, capture_output=True, text=True)


def table(cluster: Cluster) -> list[dict[str, str]]:
    """What the last job of the study makes, when it has made it."""
    path = cluster.work / "study" / "table" / "scaling.csv"
    until = time.monotonic() + WAIT_SECONDS
    while not path.exists():
        waits = bool(cluster.run("squeue", "-h"))
        assert path.exists() or (waits and time.monotonic() < until), status(cluster).stdout
        time.sleep(0.5)
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def test_a_study_makes_its_table_beside_a_single_job(cluster: Cluster, site: Path) -> None:
    """Workers of the study pretend: all that a large one goes through but the training, on a machine that
    could not train so much. Those of the single job train."""
    words = ("--nodes", "1,4,16", "--hours", 0.003, "--directory", "study", "--submit")
    cluster.aiperf("launch", "scaling", *words, "--", "--preset", "digits", "--pretend", "laptop")
    once = ("--nodes", 2, "--hours", 0.003, "--name", "first", "--submit", "--", "--preset", TINY)
    told = cluster.aiperf("launch", "slurm", *once)
    rows = table(cluster)
    printed = {path.name: path.read_text(errors="replace") for path in cluster.work.glob("study-16-*.out")}
    assert [(row["nodes"], row["devices"]) for row in rows] == [(n, n) for n in ("1", "4", "16")], printed
    assert all(float(row["ops_per_second"]) > 0 for row in rows)
    assert {(row["origin"], row["verdict"].split()[0]) for row in rows} == {("pretended", "SIMULATED")}
    (page,) = (cluster.work / "study" / "table").glob("*.html")
    assert "16-nodes" in page.read_text(encoding="utf-8")
    job = Job(cluster, re.findall(r"job (\d+)", told)[0])
    assert job.end() == "COMPLETED", (cluster.work / f"first-{job.id}.out").read_text()
    assert "VALID, class smoke" in (cluster.work / f"first-{job.id}.out").read_text()
    answer = status(cluster)
    assert answer.returncode == 0
    lines = ["1 node done", "4 nodes done", "16 nodes done"]
    assert [" ".join(line.split()) for line in answer.stdout.splitlines()] == lines
    study = json.loads((cluster.work / "study" / "study.json").read_text())
    assert len(study["config_hash"]) == 64

    run = cluster.work / "study" / "nodes-0004" / "4-nodes"
    run.rename(run.with_name("lost"))
    jobs = [cluster.work / "study" / f"nodes-{size}" / "job.id" for size in ("0001", "0004", "0016")]
    before = [path.read_text() for path in jobs]
    answer = status(cluster, "--submit")
    assert answer.returncode == 1
    assert "4 nodes  failed" in answer.stdout
    assert [path.read_text() != old for path, old in zip(jobs, before)] == [False, True, False]
    cluster.run("scancel", "--me")
