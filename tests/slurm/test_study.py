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


def status(cluster: Cluster, *words: str, study: str = "study") -> subprocess.CompletedProcess[str]:
    command, environment = [BIN / "aiperf-hpc", "launch", "status", study, *words], dict(cluster.environment)
    return subprocess.run(command, cwd=cluster.work, env=environment, capture_output=True, text=True)


def table(cluster: Cluster, study: str) -> list[dict[str, str]]:
    """What the last job of the study makes, when it has made it."""
    path = cluster.work / study / "table" / "scaling.csv"
    until = time.monotonic() + WAIT_SECONDS
    while not path.exists():
        waits = bool(cluster.run("squeue", "-h"))
        assert path.exists() or (waits and time.monotonic() < until), status(cluster, study=study).stdout
        time.sleep(0.5)
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def test_a_study_of_two_sizes_makes_its_table_beside_a_single_job(cluster: Cluster, site: Path) -> None:
    words = ("--nodes", "1,2", "--hours", 0.004, "--directory", "study", "--submit", "--", "--preset", TINY)
    cluster.aiperf("launch", "scaling", *words)
    once = ("--nodes", 2, "--hours", 0.003, "--name", "first", "--submit", "--", "--preset", TINY)
    told = cluster.aiperf("launch", "slurm", *once)  # a single script, beside the study
    rows = table(cluster, "study")
    job = Job(cluster, re.findall(r"job (\d+)", told)[0])
    assert job.end() == "COMPLETED", (cluster.work / f"first-{job.id}.out").read_text()
    assert "VALID, class smoke" in (cluster.work / f"first-{job.id}.out").read_text()
    assert [row["nodes"] for row in rows] == ["1", "2"]
    assert all(row["verdict"].startswith("VALID") for row in rows)
    answer = status(cluster)
    assert answer.returncode == 0
    assert [line.split() for line in answer.stdout.splitlines()] == [
        ["1", "node", "done"],
        ["2", "nodes", "done"],
    ]
    study = json.loads((cluster.work / "study" / "study.json").read_text())
    assert len(study["config_hash"]) == 64

    run = cluster.work / "study" / "nodes-0002" / "2-nodes"
    run.rename(run.with_name("lost"))
    jobs = [cluster.work / "study" / f"nodes-000{n}" / "job.id" for n in (1, 2)]
    before = [path.read_text() for path in jobs]
    answer = status(cluster, "--submit")
    assert answer.returncode == 1
    assert "2 nodes  failed" in answer.stdout
    assert [path.read_text() != old for path, old in zip(jobs, before)] == [False, True]
    cluster.run("scancel", "--me")


def test_workers_that_pretend_make_a_study_of_sixteen_nodes(cluster: Cluster, site: Path) -> None:
    """All that a large study goes through but the training, on a machine that could not train so much."""
    words = ("--nodes", "1,4,16", "--hours", 0.003, "--directory", "pretended", "--submit")
    cluster.aiperf("launch", "scaling", *words, "--", "--preset", "digits", "--pretend", "laptop")
    rows = table(cluster, "pretended")
    printed = {
        path.name: path.read_text(errors="replace") for path in cluster.work.glob("pretended-16-*.out")
    }
    sizes = [(row["nodes"], row["devices"]) for row in rows]
    assert sizes == [(n, n) for n in ("1", "4", "16")], printed
    assert all(float(row["ops_per_second"]) > 0 for row in rows)
    assert {(row["origin"], row["verdict"].split()[0]) for row in rows} == {("pretended", "SIMULATED")}
    assert status(cluster, study="pretended").returncode == 0
    (page,) = (cluster.work / "pretended" / "table").glob("*.html")
    assert "16-nodes" in page.read_text(encoding="utf-8")
