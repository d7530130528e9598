"""Jobs on a real Grid Engine: ended and continued, warned and queued again; and a study of them."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiperf.journal.run_files import RunFiles
from aiperf.rules.verdict import RunClass, judge
from launch.job import Job
from tests.house.tree import ROOT
from tests.mpi.jobs import QUICK, TINY, endings
from tests.mpi.jobs import told as replayed
from tests.mpi.switch import as_root
from tests.sge.cluster import BIN, SLOTS, Cluster, cluster_of, text, wait_until

pytestmark = [pytest.mark.sge, pytest.mark.torch, pytest.mark.timeout(900), as_root]

NODES = ("node1", "node2", "node3", "node4", "node5")
SPAN_SECONDS = 20.0
SHORT_HOURS = 0.003
LEFT = "import os, time; from launch.current_job import job_seconds_left as left; "
LEFT += "print('the limit leaves', left(os.environ, time.time()), 's')"
SITE = f"""
setup = ['''{BIN}/python -c "{LEFT}" ''', 'export PATH="{BIN}:$PATH"']
queue.parallel_environment = "whole"
devices = {{ per_node = {SLOTS - 1}, request = "none", cores_per_node = {SLOTS} }}
mpi.launcher = "mpiexec"

[environment]
PYTHONPATH = "{ROOT}:{QUICK}"
OMP_NUM_THREADS = "1"
OMPI_ALLOW_RUN_AS_ROOT = "1"
OMPI_ALLOW_RUN_AS_ROOT_CONFIRM = "1"
AIPERF_DOCTOR_SECONDS = "400"
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_of(NODES, tmp_path_factory.mktemp("sge")) as started:
        (started.work / "site.toml").write_text(SITE)
        yield started


@pytest.fixture(scope="module")
def study(cluster: Cluster) -> Path:
    """A study on three nodes, submitted before all other jobs. Its first job is warned early, once."""
    words = ("--scheduler", "sge", "--nodes", "1,2", "--hours", SHORT_HOURS, "--", "--preset", "digits")
    cluster.aiperf("launch", "scaling", *words, "--pretend", "laptop")
    made = cluster.work / "scaling-study"
    script = made / "nodes-0001" / "job.sge"
    early, count = re.subn(r"\$\(\(\d+ - SECONDS\)\)", "$((RESTARTED ? 900 : 4))", text(script))
    assert count == 1
    script.write_text(early)
    cluster.ask(BIN / "aiperf-hpc", "launch", "status", made, "--submit")  # exit code 1 until all are done
    return made


def test_a_job_of_two_nodes_is_ended_by_qdel_and_continues(cluster: Cluster, study: Path) -> None:
    words = ("--nodes", 2, "--hours", SPAN_SECONDS / 3600, "--submit", "--", "--preset", TINY)
    told = cluster.aiperf("launch", "sge", *words, "--device", "cpu")
    (job,) = re.findall(r"^aiperf-hpc-2\.sge: job (\d+)$", told, re.MULTILINE)
    directory, output = f"runs/aiperf-hpc-{job}", cluster.work / f"aiperf-hpc-{job}.out"
    run = RunFiles(cluster.work / directory)
    wait_until(lambda: '"type":"Released"' in text(run.journal), lambda: text(output))
    cluster.run("qdel", job)
    wait_until(lambda: job not in cluster.states(), lambda: text(output))
    again = f"then use AIPERF_DIRECTORY={directory} qsub -v AIPERF_DIRECTORY, with this script\n"
    assert again in text(output)

    # A comma separates the variables of this option.
    moved = f"{directory},moved"
    run = RunFiles(run.directory.rename(cluster.work / moved))
    directory, variable = moved, "AIPERF_DIRECTORY"
    words = ("env", f"{variable}={directory}", "qsub", "-terse", "-v", variable, "aiperf-hpc-2.sge")
    again = cluster.run(*words).strip()
    output = cluster.work / f"aiperf-hpc-{again}.out"
    wait_until(lambda: again not in cluster.states(), lambda: text(output))
    assert text(output).endswith(f"done: {directory}\n"), text(output)
    journal = replayed(run.directory)
    verdict = judge(journal, run)
    assert (verdict.valid, verdict.run_class) == (True, RunClass.SMOKE), verdict
    assert endings(journal)[0] == "terminated"
    assert journal.legs[0].losses == []
    assert journal.num_legs == 2
    assert journal.span_seconds == pytest.approx(SPAN_SECONDS, abs=0.5)
    assert len({event.ready.host for event in journal.ranks}) == 2
    assert '"job":"SGE ' in text(run.journal)


def test_a_study_makes_its_table_and_a_warned_job_of_it_is_queued_again(
    cluster: Cluster, study: Path
) -> None:
    table = study / "table" / "scaling.csv"
    wait_until(table.exists, lambda: cluster.ask(BIN / "aiperf-hpc", "launch", "status", study).stdout)
    rows = list(csv.DictReader(text(table).splitlines()))
    shown = [(row["nodes"], row["devices"], row["verdict"].split()[0]) for row in rows]
    assert shown == [("1", "1", "SIMULATED"), ("2", "2", "SIMULATED")]
    assert cluster.aiperf("launch", "status", study) == "     1 node  done\n    2 nodes  done\n"
    (warned,) = cluster.work.glob("scaling-study-1-*.out")
    assert text(warned).count("Grid Engine requeues this job because of exit code 99") == 1
    limits = [float(left) for left in re.findall(r"^the limit leaves (.*) s$", text(warned), re.MULTILINE)]
    assert len(limits) == 2
    assert all(1000 < left <= Job(1, SHORT_HOURS).limit_seconds for left in limits)
