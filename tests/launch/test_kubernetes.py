"""The manifests for Kubernetes, with an operator, without MPI, or by Kubeflow Trainer: fields that the
cluster knows, a script that it leaves as it is, and what pods of the Indexed Job do and return."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest

from launch import FORMS, SCHEDULERS
from launch.indexed_job import LOST
from launch.job import Job
from launch.kubernetes import ANSWER_SECONDS, HOSTS
from launch.pods import AGAIN
from launch.script import script_text
from launch.site import Devices, Mpi, Pods, Site
from tests.launch.golden import GOLDEN, KUBERNETES, PLAIN_PODS, documents
from tests.launch.stand_ins import install
from tests.launch.test_running import TESTED, Machine
from tests.tables import ComesTo

NO_MPI, TRAINJOB = FORMS["kubernetes"]["no-mpi"], FORMS["kubernetes"]["trainjob"]
MPIJOB, TRAINER = (
    json.loads(Path(__file__).with_name(f"{name}.schema.json").read_text()) for name in ("mpijob", "trainjob")
)
OPERATORS = {"MPIJob": MPIJOB, **TRAINER}
PLAIN_TRAINJOB = script_text(TRAINJOB, PLAIN_PODS, Job(1, 0.5))
MANIFESTS = {each.path.name: each.text for each in GOLDEN if each.scheduler == "kubernetes"}
MANIFESTS["plain_trainjob"] = PLAIN_TRAINJOB


def replicas(found: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What an operator makes several of from these objects, each with a template."""
    if "MPIJob" in found:
        yield from found["MPIJob"]["spec"]["mpiReplicaSpecs"].values()
    if "TrainingRuntime" in found:
        yield from found["TrainingRuntime"]["spec"]["template"]["spec"]["replicatedJobs"]


@pytest.mark.parametrize("text", MANIFESTS.values(), ids=MANIFESTS)
def test_the_cluster_and_its_operators_know_every_field(text: str) -> None:
    found = documents(text)
    for kind in found.keys() & OPERATORS.keys():
        jsonschema.validate(found[kind], OPERATORS[kind])
    version, name = ("v1", "Pod") if "MPIJob" in found else ("batch/v1", "Job")
    kind_of = {"apiVersion": version, "kind": name, "metadata": {"name": "x"}}
    made = ({**kind_of, "spec": each["template"]["spec"]} for each in replicas(found))
    for each in (*made, *(found[kind] for kind in found.keys() - OPERATORS.keys())):
        assert kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)


def test_without_a_queue_a_trainjob_is_not_suspended() -> None:
    assert "suspend" not in documents(PLAIN_TRAINJOB)["TrainJob"]["spec"]


def test_the_scripts_in_it_are_left_as_they_are_and_a_folder_may_have_any_name() -> None:
    """Kubernetes would take $(NAME) for a variable of the pod, and $$ for one $."""
    mount = '/data/"a" $HOME, {😀} #'
    site = replace(KUBERNETES, setup=("echo $$",), kubernetes=replace(KUBERNETES.kubernetes, mount=mount))
    for each in replicas(documents(script_text(SCHEDULERS["kubernetes"], site, Job(1, 1)))):
        (container,) = each["template"]["spec"]["containers"]
        (script,) = container["args"]
        names = {variable["name"] for variable in container["env"]}
        assert names.isdisjoint(re.findall(r"\$\((\w+)\)", script))
        assert re.findall(r"\$\$+", script) in ([], ["$$$$"])
        checked = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
        assert (checked.returncode, checked.stderr) == (0, "")
        assert container["workingDir"] == container["volumeMounts"][0]["mountPath"] == mount


def named(name: str) -> str:
    manifest = documents(script_text(SCHEDULERS["kubernetes"], KUBERNETES, Job(1, 1, name)))["MPIJob"]
    found: str = manifest["metadata"]["generateName"]
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", f"{found}x7k2p-worker-99999")
    return found


def test_the_names_of_pods_are_those_of_services(comes_to_what_was_read: ComesTo) -> None:
    """Five characters are added to it, then -worker- and a number: 63 at most, a letter first (RFC 1035)."""
    comes_to_what_was_read("pod_names.txt", {"named": named})


# An ssh that reaches one worker.
SSH = """#!/bin/sh
for host; do [ "$host" = true ] || name=$host; done
[ "$name" = "$ANSWERS" ] && exit
echo "Pseudo-terminal will not be allocated" >&2
printf "ssh: Could not resolve hostname %s: Name or service not known\\r\\n" "$name" >&2
exit 255
"""


@pytest.mark.parametrize("content", [None, ""])
def test_a_launcher_without_workers_does_not_run_alone(content: str | None, tmp_path: Path) -> None:
    """Otherwise it would measure its own pod, which has no device."""
    if content is not None:
        (tmp_path / "hostfile").write_text(content)
    scheduler = SCHEDULERS["kubernetes"]
    lines = [f"set -uo pipefail; nodes={scheduler.nodes}", *scheduler.host_lines(), "echo started"]
    script = "\n".join(lines).replace(HOSTS, str(tmp_path / "hostfile"))
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.endswith(f"{tmp_path}/hostfile names no worker; the operator makes it\n")


def test_the_launcher_says_for_which_worker_it_waits_and_ends_with_the_reason(tmp_path: Path) -> None:
    install(tmp_path, {"ssh": SSH})
    (temporary := tmp_path / "temporary").mkdir()
    (tmp_path / "hostfile").write_text("job-worker-0.job.ns.svc slots=1\njob-worker-1.job.ns.svc slots=1\n")
    lines = [
        line.replace(HOSTS, str(tmp_path / "hostfile")) for line in SCHEDULERS["kubernetes"].host_lines()
    ]
    before = (
        f"sleep() {{ SECONDS={ANSWER_SECONDS}; }}; "  # the first pause takes all the time
        "set -uo pipefail; SECONDS=0 nodes=2 devices=1 warned= PRTE_MCA_plm_ssh_args="
    )
    ran = subprocess.run(
        ["bash", "-c", "\n".join([before, *lines, "echo started"])],
        env={
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "HOSTNAME": "job-launcher",
            "ANSWERS": "job-worker-0.job.ns.svc",
            "TMPDIR": str(temporary),
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    reason = "ssh: Could not resolve hostname job-worker-1.job.ns.svc: Name or service not known"
    assert (ran.returncode, ran.stdout, ran.stderr) == (
        1,
        f"waiting for job-worker-1.job.ns.svc: {reason}\n",
        f"job-worker-1.job.ns.svc does not answer: {reason}; see kubectl describe pod job-worker-1\n",
    )
    assert not list(temporary.iterdir())


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


def test_a_run_of_the_same_name_has_names_of_its_own() -> None:
    own, other = (
        documents(script_text(NO_MPI, SITE, Job(1, 1, secret=secret)))["Job"] for secret in ("one", "another")
    )
    assert own["metadata"]["name"] != other["metadata"]["name"]


class Node(Machine):
    """A folder to work in, and commands that are found there."""

    def pod(self, index: int, **variables: str) -> tuple[int, str, list[str]]:
        """The exit code of a pod of two, what it prints last, and which ranks it starts."""
        text = script_text(NO_MPI, SITE, Job(2, 1, "x", directory="runs/a-job", secret="s"))
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


def test_a_request_has_a_name_of_its_own_that_pods_can_have() -> None:
    """JobSet adds a job's name, two numbers and five characters: 63 at most, a letter first (RFC 1035)."""
    names = set[str]()
    for job in (Job(1, 1), Job(2, 1), Job(1, 2), Job(1, 1, "9" * 63), Job(1, 1, "x" * 37 + ".y")):
        name = documents(script_text(TRAINJOB, KUBERNETES, job))["TrainJob"]["metadata"]["name"]
        for pod in ("launcher-0-0", "node-0-99999"):
            assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", f"{name}-{pod}-x7k2p")
        names.add(name)
    assert len(names) == 5
    assert script_text(TRAINJOB, KUBERNETES, Job(1, 1)) == script_text(TRAINJOB, KUBERNETES, Job(1, 1))
