"""The TrainJob and its runtime: fields that the cluster knows, and what Kubeflow Trainer makes of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest

from launch import FORMS
from launch.job import Job
from launch.script import script_text
from tests.launch.golden import GOLDEN, KUBERNETES, PLAIN_PODS, documents

FORM = FORMS["kubernetes"]["trainjob"]
(GOLDEN_TEXT,) = (each.text for each in GOLDEN if each.form == "trainjob")
PLAIN = script_text(FORM, PLAIN_PODS, Job(1, 0.5))
SCHEMAS = json.loads(Path(__file__).with_name("trainjob.schema.json").read_text(encoding="utf-8"))


def jobs(text: str) -> dict[str, Any]:
    """The templates of the jobs, by their names."""
    runtime = documents(text)["TrainingRuntime"]["spec"]
    return {each["name"]: each["template"] for each in runtime["template"]["spec"]["replicatedJobs"]}


def validate(text: str) -> None:
    for kind, each in documents(text).items():
        jsonschema.validate(each, SCHEMAS[kind])
    for name, template in jobs(text).items():
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": template["spec"]}
        assert kubernetes_validate.validate(job, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("text", [GOLDEN_TEXT, PLAIN], ids=["queued", "plain"])
def test_the_cluster_knows_every_field(text: str) -> None:
    """The runtime comes first: Trainer refuses a job without it."""
    assert [*documents(text)] == ["TrainingRuntime", "TrainJob"]
    validate(text)
    assert ("suspend" in documents(text)["TrainJob"]["spec"]) == (text != PLAIN)


def test_a_request_has_a_name_of_its_own_that_pods_can_have() -> None:
    """JobSet adds a job's name, two numbers and five characters: 63 at most, a letter first (RFC 1035)."""
    names = set[str]()
    for job in (Job(1, 1), Job(2, 1), Job(1, 2), Job(1, 1, "9" * 63), Job(1, 1, "x" * 37 + ".y")):
        name = documents(script_text(FORM, KUBERNETES, job))["TrainJob"]["metadata"]["name"]
        for pod in ("launcher-0-0", "node-0-99999"):
            assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", f"{name}-{pod}-x7k2p")
        names.add(name)
    assert len(names) == 5
    assert script_text(FORM, KUBERNETES, Job(1, 1)) == script_text(FORM, KUBERNETES, Job(1, 1))
