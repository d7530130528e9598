"""Runs without MPI: on two hosts by a loop that starts each rank, as one of ssh does, and torchrun; and on
one."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

import psutil
import pytest

from aiperf.journal.run_files import RunFiles
from aiperf.ranks.launcher import SECRET
from aiperf.rules.verdict import judge
from tests.house.tree import ROOT
from tests.mpi.jobs import endings, started, tiny, told
from tests.mpi.switch import Hosts, as_root, joined_hosts
from tests.mpi.test_signals import STOPPED

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(600)]

PORT = 29400
ALONE = ("--devices-per-trial", 1)
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


def words(directory: Path, minutes: float, *more: object) -> list[str]:
    """The command of a short run."""
    return [str(BIN / "aiperf-hpc"), *map(str, tiny(directory, minutes, *more))]


def loop_of_the_page(directory: Path) -> str:
    """The loop of ssh that docs/running.md shows, with the hosts and a short run of the test."""
    page = (ROOT / "docs/running.md").read_text(encoding="utf-8")
    (loop,) = re.findall(r"^```\n(\(umask 077.*?)^```", page, re.MULTILINE | re.DOTALL)
    command = ".venv/bin/aiperf-hpc run --preset synthetic --directory runs/two"
    assert loop.count(command) == 1
    loop = loop.replace(command, " ".join(words(directory, 0.25, *ALONE)))
    return str(loop.replace("node1", "alpha").replace("node2", "beta"))


def listening(hosts: Hosts) -> set[str]:
    """Addresses and ports at which a process of one of the hosts listens."""
    return {line.split()[3] for host in hosts.names for line in hosts.switch.listening(host)}


@as_root
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


@as_root
@pytest.mark.slow
def test_torchrun_on_two_hosts(directory: Path, tmp_path: Path) -> None:
    with joined_hosts(tmp_path) as hosts:
        (secret := tmp_path / "secret").write_text("not known to anybody else\n")
        secret.chmod(0o600)
        variables = {"AGENT": str(hosts.agent), "TORCHRUN": str(BIN / "torchrun"), SECRET: str(secret)}
        meet = ["--nnodes=2", "--master-addr=10.77.0.1", f"--master-port={PORT}", "--no-python"]
        loop = ["bash", "-c", TORCHRUN, "loop", *meet, *words(directory, 0.2, *ALONE)]
        with started(loop, directory, **variables) as job:
            job.wait_for('"Released"')
            assert not any(address.endswith(f":{PORT + 1}") for address in listening(hosts))
            assert job.end() == 0, job.text()
    replay = told(directory)
    hosts_of = {event.ready.rank: event.ready.host for event in replay.ranks}
    assert hosts_of == {1: "alpha", 2: "beta"}
    assert judge(replay, RunFiles(directory)).valid


# On one host sockets carry the messages.

STANDALONE = (str(BIN / "torchrun"), "--standalone", "--nproc-per-node=3", "--no-python")


def test_a_run_under_torchrun_is_valid(directory: Path) -> None:
    with started([*STANDALONE, *words(directory, 0.1)], directory) as job:
        job.wait_for('"Released"')
        sockets = [each for worker in job.workers() for each in worker.net_connections("tcp")]
        listening = {each.laddr.ip for each in sockets if each.status == psutil.CONN_LISTEN}
        assert job.end(300.0) == 0, job.text()
    assert listening == {"127.0.0.1"}, "no other host can reach a group of one host"
    replay = told(directory)
    assert replay.leg.began.groups == ((1, 2),)
    assert replay.tested is not None
    assert judge(replay, RunFiles(directory)).valid


@pytest.mark.slow
def test_a_rank_that_dies_under_torchrun_leaves_a_result_and_no_folder(
    directory: Path, tmp_path: Path
) -> None:
    """torchrun warns the other ranks, and kills them half a minute later."""
    command = [*STANDALONE, *words(directory, 0.1, *ALONE)]
    with started(command, directory, TMPDIR=str(tmp_path)) as job:
        job.wait_for('"Closed"', count=2)
        of_rank = [each for each in job.processes() if each.environ().get("RANK") == "2"]
        next(each for each in of_rank if each not in job.workers()).kill()
        killed = time.monotonic()
        assert job.end(60.0) != 0
        assert time.monotonic() - killed < 30.0, job.text()
    found, text = told(directory), job.text()
    assert [loss.reason.partition(" on ")[0] for loss in found.leg.losses] == ["rank 2"]
    assert f" {STOPPED}; `aiperf-hpc resume {directory}`" in text
    assert list(tmp_path.glob("aiperf-hpc-*")) == []
