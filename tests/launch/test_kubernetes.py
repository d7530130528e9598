"""The manifests for Kubernetes: fields that the cluster knows, a script that it leaves as it is, and what a
site cannot ask for."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from launch import SCHEDULERS
from launch.job import Job
from launch.kubernetes import ANSWER_SECONDS, HOSTS
from launch.script import script_text
from tests.launch.golden import GOLDEN, KUBERNETES
from tests.launch.stand_ins import install
from tests.tables import ComesTo

MANIFESTS = {each.path.name: each.text for each in GOLDEN if each.scheduler == "kubernetes" and not each.form}


def pods(manifest: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    replicas = manifest["spec"]["mpiReplicaSpecs"]
    return {kind: each["template"]["spec"] for kind, each in replicas.items()}


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_cluster_knows_every_field(name: str) -> None:
    manifest = yaml.safe_load(MANIFESTS[name])
    schema = json.loads(Path(__file__).with_name("mpijob.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(manifest, schema)
    for spec in pods(manifest).values():
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec}
        assert kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)


def test_the_scripts_in_it_are_left_as_they_are() -> None:
    """Kubernetes would take $(NAME) for a variable of the pod, and $$ for one $."""
    site = replace(KUBERNETES, setup=("echo $$",))
    for spec in pods(yaml.safe_load(script_text(SCHEDULERS["kubernetes"], site, Job(1, 1)))).values():
        (container,) = spec["containers"]
        (script,) = container["args"]
        names = {each["name"] for each in container["env"]}
        assert names.isdisjoint(re.findall(r"\$\((\w+)\)", script))
        assert re.findall(r"\$\$+", script) in ([], ["$$$$"])
        checked = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
        assert (checked.returncode, checked.stderr) == (0, "")


def named(name: str) -> str:
    manifest = yaml.safe_load(script_text(SCHEDULERS["kubernetes"], KUBERNETES, Job(1, 1, name)))
    found: str = manifest["metadata"]["generateName"]
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", f"{found}x7k2p-worker-99999")
    return found


def test_the_names_of_pods_are_those_of_services(comes_to_what_was_read: ComesTo) -> None:
    """Five characters are added to it, then -worker- and a number: 63 at most, a letter first (RFC 1035)."""
    comes_to_what_was_read("pod_names.txt", {"named": named})


def test_a_folder_may_have_any_name() -> None:
    mount = '/data/"a" $HOME, {😀} #'
    site = replace(KUBERNETES, kubernetes=replace(KUBERNETES.kubernetes, mount=mount))
    for spec in pods(yaml.safe_load(script_text(SCHEDULERS["kubernetes"], site, Job(1, 1)))).values():
        (container,) = spec["containers"]
        assert container["workingDir"] == container["volumeMounts"][0]["mountPath"] == mount


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
