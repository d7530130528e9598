"""Runs on one host without MPI: torchrun starts the ranks, and sockets carry their messages."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from aiperf.errors import WorldError
from aiperf.files import RunFiles
from aiperf.ranks.launched import Launched
from aiperf.ranks.torchrun import LARGEST_BYTES, SocketLink
from aiperf.rules.verdict import judge
from tests.mpi.jobs import TINY, started, told

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(600)]

BIN = Path(sys.executable).parent


def links(size: int, run_id: str) -> list[SocketLink]:
    return [SocketLink(Launched(rank, size, "torchrun", False), run_id) for rank in range(size)]


def test_messages_keep_their_order_and_wait_for_whom_is_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    first = SocketLink(Launched(0, 2, "torchrun", False), "x")
    sent = [bytes([number]) * (number * 1000) for number in range(200)]
    for data in sent:  # more than the kernel holds, to a rank that is not there yet
        first.send(1, 7, data)
    second = SocketLink(Launched(1, 2, "torchrun", False), "x")
    flushing = threading.Thread(target=first.flush, args=(30.0,))
    flushing.start()
    received = [second.receive(10.0) for _ in sent]
    flushing.join()
    assert [(each.source, each.tag, each.data) for each in received if each] == [
        (0, 7, data) for data in sent
    ]
    second.finalize()
    first.finalize()
    assert list(tmp_path.iterdir()) == []


def test_a_large_message_arrives_and_a_huge_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    first, second = links(2, "y")
    first.send(1, 0, b"x" * 150_000)
    received = second.receive(5.0)
    assert received is not None
    assert len(received.data) == 150_000
    with pytest.raises(WorldError, match="too long; start the ranks by mpiexec"):
        first.send(1, 0, bytes(LARGEST_BYTES))
    second.finalize()
    first.finalize()


def test_several_hosts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "LOCAL_WORLD_SIZE", "2")
    with pytest.raises(WorldError, match="by mpiexec or srun"):
        SocketLink(Launched(0, 4, "torchrun", False), "z")


def test_two_runs_of_one_name_do_not_hear_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --standalone, torchrun calls every run "none"."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("MASTER_PORT", "29500")
    first = links(2, "none")
    monkeypatch.setenv("MASTER_PORT", "29501")
    second = links(2, "none")
    first[0].send(1, 0, b"of the first")
    assert second[1].receive(0.2) is None
    assert first[1].receive(5.0) is not None
    for link in (*first[::-1], *second[::-1]):
        link.finalize()


def test_a_folder_of_too_long_a_name_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with pytest.raises(WorldError, match="set TMPDIR to a shorter path"):
        links(1, "none")


def test_a_run_under_torchrun_is_valid(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    torchrun = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node=3", "--no-python"]
    words = ["run", "--preset", str(TINY), "--minutes", "0.1", "--directory", str(directory)]
    with started([*torchrun, str(BIN / "aiperf-hpc"), *words], directory) as job:
        assert job.end(300.0) == 0, job.text()
    replay = told(directory)
    assert replay.leg.began.groups == ((1, 2),)
    assert replay.tested is not None
    assert judge(replay, RunFiles(directory)).valid
