"""Runs on two hosts without MPI: a loop that starts each rank, as one of ssh does, and torchrun."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from aiperf.journal.run_files import RunFiles
from aiperf.ranks.launcher import SECRET
from aiperf.rules.verdict import judge
from tests.house.tree import ROOT
from tests.mpi.hosts import Hosts, joined_hosts
from tests.mpi.jobs import endings, started, tiny, told
from tests.mpi.switch import as_root

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(600), as_root]

PORT = 29400
BIN = Path(sys.executable).parent
# `ssh` to a host of the test, whose home directory is the test's.
SSH = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do [ "$1" = -o ] && shift; shift; done
cd "$HOME"
exec "$AGENT" "$@"
"""
TORCHRUN = """
"$AGENT" beta exec "$TORCHRUN" --node-rank=1 --nproc-per-node=1 "$@" &
"$AGENT" alpha exec "$TORCHRUN" --node-rank=0 --nproc-per-node=2 "$@"
code=$?
wait
exit $code
"""


def words(directory: Path, minutes: float) -> list[str]:
    """The command of a short run."""
    return [str(BIN / "aiperf-hpc"), *map(str, tiny(directory, minutes, "--devices-per-trial", 1))]


def loop_of_the_page(directory: Path) -> str:
    """The loop of ssh that docs/running.md shows, with the hosts and a short run of the test."""
    page = (ROOT / "docs/running.md").read_text(encoding="utf-8")
    (loop,) = re.findall(r"^```\n(\(umask 077.*?)^```", page, re.MULTILINE | re.DOTALL)
    command = ".venv/bin/aiperf-hpc run --preset synthetic --directory runs/two"
    assert loop.count(command) == 1
    for own, of_page in ((" ".join(words(directory, 0.25)), command), ("alpha", "node1"), ("beta", "node2")):
        loop = loop.replace(of_page, own)
    return str(loop)


def listening(hosts: Hosts) -> set[str]:
    """Addresses and ports at which a process of one of the hosts listens."""
    return {line.split()[3] for host in hosts.names for line in hosts.switch.listening(host)}


def test_the_loop_of_the_page_survives_a_rank_and_leaves_no_port_open(tmp_path: Path) -> None:
    """The hosts share no run directory, so weights are sent too."""
    runs, commands = tmp_path / "runs", tmp_path / "commands"
    for folder in (runs, commands, tmp_path / "aiperf-hpc"):
        folder.mkdir()
    for name, text in (("ssh", SSH), ("scp", "#!/bin/sh\n")):
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    directory = runs / "run"
    with joined_hosts(tmp_path, hidden=runs) as hosts:
        variables = {"AGENT": str(hosts.agent), "HOME": str(tmp_path)}
        variables["PATH"] = f"{commands}:{os.environ['PATH']}"
        loop = ["bash", "-c", loop_of_the_page(directory)]
        with started(loop, directory, tmp_path / "job.out", **variables) as job:
            job.wait_for('"Closed"')
            assert listening(hosts) == set(), "all ranks have connected"
            (dead,) = [each.parent() for each in job.workers() if each.environ()["RANK"] == "2"]
            assert dead is not None
            dead.kill()
            assert job.end() == 0, job.text()
            text = job.text()
        assert listening(hosts) == set()
    replay = told(directory)
    assert [loss.reason for loss in replay.leg.losses] == ["rank 2 on beta is dead"]
    assert f"{directory} is not shared with beta: weights" in text
    assert judge(replay, RunFiles(directory)).valid
    assert endings(replay) == ["deadline"]
    assert not (tmp_path / "secret").exists()


@pytest.mark.slow
def test_torchrun_on_two_hosts(directory: Path, tmp_path: Path) -> None:
    with joined_hosts(tmp_path) as hosts:
        (secret := tmp_path / "secret").write_text("not known to anybody else\n")
        secret.chmod(0o600)
        variables = {"AGENT": str(hosts.agent), "TORCHRUN": str(BIN / "torchrun"), SECRET: str(secret)}
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
