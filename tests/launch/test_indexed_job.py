"""The Indexed Job for Kubernetes: fields that the cluster knows, what each of its pods does and returns."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import kubernetes_validate

from launch import FORMS
from launch.indexed_job import LOST
from launch.job import Job
from launch.pods import AGAIN
from launch.script import script_text
from launch.site import Devices, Mpi, Pods, Site
from tests.launch.golden import GOLDEN, documents
from tests.launch.stand_ins import install
from tests.launch.test_running import TESTED, Machine
from tests.tables import ComesTo

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
eval "${GETENT-}"
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


def made(folder: Path) -> Node:
    install(folder / "bin", {"aiperf-hpc": PROGRAM, "getent": GETENT, "sleep": SLEEP})
    return Node(folder)


def test_the_ranks_of_the_pods(tmp_path: Path) -> None:
    """The first pod has the master as well, by a name that leads to no address of an earlier pod."""
    node = made(tmp_path)
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


def test_what_a_pod_returns(tmp_path: Path, comes_to_what_was_read: ComesTo) -> None:
    def returned(index: int, **given: str) -> int | str:
        code = made(Path(tempfile.mkdtemp(dir=tmp_path))).pod(index, **given)[0]
        return {AGAIN: "AGAIN", LOST: "LOST"}.get(code, code)

    names = {"returned": returned, "WARNED": WARNED, "HEEDED": HEEDED}
    comes_to_what_was_read("pod_codes.txt", names)
