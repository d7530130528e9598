"""Runs on two hosts without MPI: a loop that starts each rank, as one of ssh does, and torchrun."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aiperf.journal.run_files import RunFiles
from aiperf.ranks.launcher import SECRET
from aiperf.rules.verdict import judge
from tests.mpi.hosts import ADDRESSES, TwoHosts, two_hosts
from tests.mpi.jobs import TINY, started, told

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may make network namespaces"),
]

PORT = 29400
BIN = Path(sys.executable).parent
# The loop of docs/running.md, with another command in the place of ssh.
LOOP = """
number=0
for host in beta alpha; do
    number=$((number + 1))
    "$AGENT" "$host" exec env RANK=$number "$@" &
done
"$AGENT" alpha exec env RANK=0 "$@"
code=$?
wait
exit $code
"""
TORCHRUN = """
"$AGENT" beta exec "$TORCHRUN" --node-rank=1 --nproc-per-node=1 "$@" &
"$AGENT" alpha exec "$TORCHRUN" --node-rank=0 --nproc-per-node=2 "$@"
code=$?
wait
exit $code
"""


def words(directory: Path, minutes: float) -> list[str]:
    run = ["run", "--preset", str(TINY), "--directory", str(directory), "--devices-per-trial", "1"]
    return [str(BIN / "aiperf-hpc"), *run, "--minutes", str(minutes)]


def secret(directory: Path) -> dict[str, str]:
    path = directory / "secret"
    path.write_text("not known to anybody else\n")
    path.chmod(0o600)
    return {SECRET: str(path)}


def listening(hosts: TwoHosts) -> set[str]:
    """Addresses and ports at which a process of one of the hosts listens."""
    found = set()
    for host in ADDRESSES:
        shown = ["ip", "netns", "exec", hosts.switch.space(host), "ss", "-tlnH"]
        lines = subprocess.run(shown, check=True, capture_output=True, text=True).stdout.splitlines()
        found |= {line.split()[3] for line in lines}
    return found


def test_a_rank_that_dies_is_survived_and_no_port_is_open(tmp_path: Path) -> None:
    """The hosts share no directory, so weights are sent too."""
    runs = tmp_path / "runs"
    runs.mkdir()
    directory = runs / "run"
    with two_hosts(tmp_path, hidden=runs) as hosts:
        variables = {"WORLD_SIZE": "3", "MASTER_ADDR": "alpha", "MASTER_PORT": str(PORT)}
        variables |= {"AGENT": str(hosts.agent)} | secret(tmp_path)
        loop = ["bash", "-c", LOOP, "loop", *words(directory, 0.4)]
        with started(loop, tmp_path / "job", **variables) as job:
            job.directory = directory
            job.wait_for('"Closed"', count=4)
            assert listening(hosts) == set(), "all ranks have connected"
            (dead,) = [each.parent() for each in job.workers() if each.environ()["RANK"] == "1"]
            dead.kill()
            assert job.end() == 0, job.text()
            text = job.text()
        assert listening(hosts) == set()
    replay = told(directory)
    assert [loss.reason for loss in replay.leg.losses] == ["rank 1 on beta is dead"]
    assert f"{directory} is not shared with beta: weights" in text
    assert judge(replay, RunFiles(directory)).valid
    assert replay.leg.ended is not None
    assert replay.leg.ended.reason == "deadline"


@pytest.mark.slow
def test_torchrun_on_two_hosts(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    with two_hosts(tmp_path) as hosts:
        variables = {"AGENT": str(hosts.agent), "TORCHRUN": str(BIN / "torchrun")} | secret(tmp_path)
        meet = ["--nnodes=2", "--master-addr=10.77.0.1", f"--master-port={PORT}", "--no-python"]
        loop = ["bash", "-c", TORCHRUN, "loop", *meet, *words(directory, 0.2)]
        with started(loop, directory, **variables) as job:
            job.wait_for('"Released"')
            assert not any(address.endswith(f":{PORT + 1}") for address in listening(hosts))
            assert job.end() == 0, job.text()
    replay = told(directory)
    hosts_of = {event.ready.rank: event.ready.host for event in replay.ranks}
    assert hosts_of == {1: "alpha", 2: "beta"}
    assert judge(replay, RunFiles(directory)).valid
