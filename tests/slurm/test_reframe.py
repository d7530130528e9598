"""ReFrame's test of this program as a job of Slurm: a group on each of two nodes."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.mpi.jobs import TINY
from tests.packaging.recipes import FOLDER, tool
from tests.slurm.cluster import BIN, Cluster

pytestmark = [pytest.mark.recipes, pytest.mark.slurm, pytest.mark.torch, pytest.mark.timeout(900)]


def test_a_job_has_a_group_on_each_node(cluster: Cluster) -> None:
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
