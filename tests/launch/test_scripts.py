"""Whole batch scripts against files that a person has read, and what bash makes of them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from aiperf.errors import ConfigError
from launch import SCHEDULERS
from launch.job import Job
from launch.script import script_text
from launch.site import Mpi, Site
from tests.launch.golden import GOLDEN, HERE, SHIPPED, SITE, Golden

NAMES = [golden.path.name for golden in GOLDEN]


@pytest.mark.parametrize("golden", GOLDEN, ids=NAMES)
def test_a_script_is_what_a_person_has_read(golden: Golden) -> None:
    assert golden.text == golden.path.read_text(encoding="utf-8")


def test_no_script_lies_there_unread() -> None:
    there = {
        path for folder in (HERE, SHIPPED) for path in folder.iterdir() if path.suffix not in (".md", ".def")
    }
    assert there == {golden.path for golden in GOLDEN}
    assert {golden.scheduler for golden in GOLDEN} == {*SCHEDULERS}


@pytest.mark.parametrize("golden", GOLDEN, ids=NAMES)
def test_bash_can_read_it(golden: Golden) -> None:
    checked = subprocess.run(["bash", "-n", golden.path], capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("path", [golden.path for golden in GOLDEN if golden.path.parent == SHIPPED])
def test_a_shipped_script_has_at_most_three_marks(path: Path) -> None:
    marks = re.findall(r"^# EDIT (\d)", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert marks == ["1", "2", "3"]


def placed(num_nodes: int, devices: int) -> list[str]:
    """The hosts of all ranks, as the script's own lines place them."""
    text = script_text(SCHEDULERS["slurm"], SITE, Job(num_nodes, 1))
    lines = re.search(r"^scontrol show.*?\n.*?\n", text, re.MULTILINE | re.DOTALL)
    assert lines is not None
    hosts = "\n".join(f"node{number}" for number in range(1, num_nodes + 1))
    script = f"scontrol() {{ echo '{hosts}'; }}; nodes={num_nodes} devices={devices} hosts=/dev/stdout; "
    shown = subprocess.run(["bash", "-c", script + lines[0]], capture_output=True, text=True, check=True)
    return shown.stdout.split()


@pytest.mark.parametrize(("num_nodes", "devices"), [(1, 1), (1, 8), (2, 1), (3, 2), (512, 8)])
def test_the_first_node_has_one_rank_more(num_nodes: int, devices: int) -> None:
    hosts = placed(num_nodes, devices)
    assert len(hosts) == num_nodes * devices + 1
    assert hosts.count("node1") == devices + 1
    assert all(hosts.count(f"node{number}") == devices for number in range(2, num_nodes + 1))
    assert hosts == sorted(hosts, key=lambda host: int(host[4:])), "the ranks of a node are consecutive"


def test_torchrun_stays_on_one_node() -> None:
    with pytest.raises(ConfigError, match="starts ranks on one node; --nodes is 2"):
        script_text(SCHEDULERS["slurm"], Site(mpi=Mpi("torchrun")), Job(2, 1))


@pytest.mark.parametrize(
    ("job", "seconds", "clock"),
    [
        (Job(1, 1), 5400, "01:30:00"),
        (Job(1, 0.01), 1860, "00:31:00"),
        (Job(4, 1, sizes=(1, 2, 4)), 16200, "04:30:00"),
        (Job(1, 48), 174600, "48:30:00"),
    ],
)
def test_a_job_asks_for_more_than_its_span(job: Job, seconds: int, clock: str) -> None:
    assert (job.limit_seconds, job.clock) == (seconds, clock)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Job(0, 1), "--nodes is 0"),
        (lambda: Job(1, -1), "--hours is -1"),
        (lambda: Job(1, float("inf")), "--hours is inf"),
        (lambda: Job(1, 1, repeat=0), "--repeat is 0"),
        (lambda: Job(1, 1, name="a b; rm -rf /"), "--name is"),
        (lambda: Job(2, 1, sizes=(1, 4)), "the job has 2 nodes"),
    ],
)
def test_a_job_that_cannot_be_is_refused(make: object, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        make()  # type: ignore[operator]
