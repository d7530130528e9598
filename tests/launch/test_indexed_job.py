"""The Indexed Job for Kubernetes: fields that the cluster knows, what each of its pods does and returns."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest

from launch import FORMS
from launch.indexed_job import LOST
from launch.job import Job
from launch.pods import AGAIN
from launch.script import script_text
from launch.site import Devices, Mpi, Pods, Site
from tests.launch.golden import GOLDEN, documents
from tests.launch.stand_ins import install
from tests.launch.test_running import TESTED, Machine

(GOLDEN_TEXT,) = (each.text for each in GOLDEN if each.form == "no-mpi")
SITE = Site(
    devices=Devices(per_node=2, request="none"),
    mpi=Mpi("mpiexec", options=("--not-for-pods",)),
    kubernetes=Pods("image", "claim"),
    setup=("export SCRIPT=$$ SECONDS_NOW=${SECONDS_NOW-0}", "SECONDS=$SECONDS_NOW"),
)
PROGRAM = """#!/bin/bash
echo "$1 $RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT" >>"$LOG"
tested() { mkdir -p runs/a-job; echo "$TESTED" >>runs/a-job/journal.jsonl; }
case $1 in
doctor) eval "$DOCTOR" ;;
run) eval "$RUN" ;;
esac
"""
GETENT = """#!/bin/bash
printf '%s\\n' $ADDRESSES
"""
SLEEP = """#!/bin/bash
echo "sleep $1" >>"$LOG"
"""
WARNED = "kill -TERM $SCRIPT"
HEEDED = f"trap 'exit 75' USR1; {WARNED}; until ((0)); do /bin/sleep 0.05; done"


def test_the_cluster_knows_every_field() -> None:
    found = documents(GOLDEN_TEXT)
    assert [*found] == ["Secret", "Service", "Job"]
    for each in found.values():
        assert kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)


def test_a_run_of_the_same_name_has_names_of_its_own() -> None:
    own, other = (
        documents(script_text(FORMS["kubernetes"]["no-mpi"], SITE, Job(1, 1, secret=secret)))["Job"]
        for secret in ("one", "another")
    )
    assert own["metadata"]["name"] != other["metadata"]["name"]


class Node(Machine):
    """A folder to work in, and commands that are found there."""

    def pod(self, index: int, **variables: str) -> tuple[int, str, list[str]]:
        """The exit code of a pod of two, what it prints last, and which ranks it starts."""
        text = script_text(
            FORMS["kubernetes"]["no-mpi"], SITE, Job(2, 1, "x", directory="runs/a-job", secret="s")
        )
        (container,) = documents(text)["Job"]["spec"]["template"]["spec"]["containers"]
        (script,) = container["args"]
        environment = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "LOG": str(self.folder / "log"),
            "TESTED": TESTED,
            "DOCTOR": "",
            "RUN": "",
            "ADDRESSES": "10.0.0.1 10.0.0.2 10.0.0.2",
            "KUBERNETES_JOB": "job",
            "KUBERNETES_NODES": "2",
            "JOB_COMPLETION_INDEX": str(index),
            "HOSTNAME": f"job-{index}",
            **variables,
        }
        ran = subprocess.run(
            [*container["command"], script.replace("$$", "$")],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        last = (ran.stdout + ran.stderr).strip().splitlines()[-1:]
        return ran.returncode, "".join(last), sorted(self.asked)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    install(tmp_path / "bin", {"aiperf-hpc": PROGRAM, "getent": GETENT, "sleep": SLEEP})
    return Node(tmp_path)


def test_the_ranks_of_the_pods(node: Node) -> None:
    """The first pod has the master as well, by a name that leads to no address of an earlier pod."""
    code, last, started = node.pod(0, RUN="((RANK)) || tested")
    assert (code, last) == (0, "done: runs/a-job")
    assert started == [
        f"{command} {rank} of 5 at job-0:29400" for command in ("doctor", "run") for rank in (0, 1, 2)
    ]
    (node.folder / "log").unlink()
    code, last, started = node.pod(1)
    assert (code, last) == (0, "done: runs/a-job")
    assert started == [
        *(f"{command} {rank} of 5 at job-0.job:29400" for command in ("doctor", "run") for rank in (3, 4)),
        "sleep 60",
    ]


@pytest.mark.parametrize(
    ("index", "given", "code"),
    [
        # All pods of a run that is not complete must come again: one that had succeeded would be missing.
        (1, {"RUN": "exit 0"}, AGAIN),
        (0, {"RUN": "((RANK)) || exit 75"}, AGAIN),
        (0, {"RUN": "((RANK)) || exit 3"}, 3),
        (0, {"RUN": "((RANK)) && exit 1; tested"}, 0),
        # Kubernetes must not take an error of a rank, which others survive, for one of the run.
        (1, {"RUN": "((RANK == 3)) && exit 1; tested"}, LOST),
        (1, {"RUN": "((RANK == 3)) && kill -KILL $BASHPID; tested"}, LOST),
        (0, {"RUN": f"((RANK)) && exit; {HEEDED}"}, AGAIN),
        # Only the master heeds a preemption; the others wait for it.
        (1, {"RUN": f"((RANK == 3)) && {WARNED}; trap 'exit 1' USR1; /bin/sleep 0.3"}, AGAIN),
        (1, {"DOCTOR": f"((RANK == 3)) && {WARNED}; exit 1"}, AGAIN),
        (1, {"DOCTOR": "exit 1"}, 1),
        (0, {"ADDRESSES": "10.0.0.1", "SECONDS_NOW": "600"}, 1),
    ],
)
def test_what_a_pod_returns(index: int, given: dict[str, str], code: int, node: Node) -> None:
    assert node.pod(index, **given)[0] == code
