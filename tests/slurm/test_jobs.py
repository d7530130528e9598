"""Jobs on a real Slurm: the shipped scripts, what becomes of a job that is warned or loses a node; a scaling
study from a site file that asks Slurm, to its table; and ReFrame's test."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.rules.verdict import judge
from aiperf.score.credit import credit
from aiperf.wire.trial import State
from launch.site import load_site
from launch.slurm import SRUN
from tests.mpi.jobs import TINY, TINY_TEXT, endings
from tests.packaging.recipes import FOLDER, tool
from tests.slurm import fence
from tests.slurm.cluster import BIN, ENDED, WAIT_SECONDS, Cluster, Job, cluster_of

pytestmark = [pytest.mark.slurm, pytest.mark.torch, pytest.mark.timeout(1500)]

SHORT = ("--preset", TINY, "--minutes")
SHORT_TEXT = ("--preset", TINY_TEXT, "--minutes")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_of(16, tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(autouse=True)
def _idle(cluster: Cluster) -> Iterator[None]:
    """What a test leaves behind, jobs and lost nodes, is not the next one's."""
    yield
    cluster.restore()


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


@pytest.mark.recipes
def test_reframe_s_job_has_a_group_on_each_node(cluster: Cluster) -> None:
    home = {"HOME": str(cluster.work), "PATH": f"{BIN}:{cluster.environment['PATH']}"}
    command = [tool("reframe"), "-C", FOLDER / "reframe/settings.py", "-c", FOLDER / "reframe/aiperf_hpc.py"]
    command += ["-r", "--system=site:slurm", "--prefix=reframe", f"-Spreset={TINY}", "-Sminutes=0.1"]
    command += ["-Snum_nodes=2", "-Snum_devices=1", "-Soptions=--device,cpu"]
    environment = {**cluster.environment, **home}
    answer = subprocess.run(command, cwd=cluster.work, env=environment, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout
    (written,) = (cluster.work / "reframe/output").rglob("result.json")
    result = json.loads(written.read_text(encoding="utf-8"))
    assert (result["system"]["hosts"], result["system"]["groups"]) == (2, 2)
    assert f"sustained_ops: {result['score']['ops_per_second']} OPS" in answer.stdout
