"""Runs on one host without MPI: torchrun starts the ranks, and sockets carry their messages."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest

from aiperf.errors import WorldError
from aiperf.files import RunFiles
from aiperf.ranks.launcher import LaunchedRank
from aiperf.ranks.torchrun import SocketLink
from aiperf.rules.verdict import judge
from tests.mpi.jobs import TINY, started, told

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(600)]

BIN = Path(sys.executable).parent


def links(size: int, run_id: str) -> list[SocketLink]:
    return [SocketLink(LaunchedRank(rank, size, "torchrun", False), run_id) for rank in range(size)]


@pytest.fixture(autouse=True)
def _sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their files are this test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_messages_keep_their_order_and_wait_for_whom_is_late(tmp_path: Path) -> None:
    first = SocketLink(LaunchedRank(0, 2, "torchrun", False), "x")
    sent = [bytes([number]) * (number * 1000) for number in range(200)]
    for data in sent:  # more than the kernel holds, to a rank that is not there yet
        first.send(1, 7, data)
    second = SocketLink(LaunchedRank(1, 2, "torchrun", False), "x")
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


def test_a_large_message_arrives_between_small_ones() -> None:
    first, second = links(2, "y")
    sent = [b"small", bytes(range(256)) * 100_000, b"", b"small again"]
    for data in sent:
        first.send(1, 0, data)
    flushing = threading.Thread(target=first.flush, args=(30.0,))
    flushing.start()
    assert [received.data for _ in sent if (received := second.receive(5.0))] == sent
    flushing.join()
    second.finalize()
    first.finalize()


def test_many_ranks_wait_for_one_that_reads_slowly(tmp_path: Path) -> None:
    """Nothing is lost, each one's order is kept, and who waits takes no time of a processor."""
    ranks = links(40, "z")
    count, data = 50, bytes(20_000)
    for number in range(count):
        for rank in ranks[1:]:
            rank.send(0, number, data)
    waiting = [threading.Thread(target=rank.flush, args=(60.0,)) for rank in ranks[1:]]
    for thread in waiting:
        thread.start()
    time.sleep(0.5)  # they fill what the kernel holds
    began = time.process_time()
    time.sleep(1.0)
    assert time.process_time() - began < 0.2, "of one second"
    heard: dict[int, list[int]] = {}
    while sum(map(len, heard.values())) < 39 * count:
        received = ranks[0].receive(10.0)
        assert received is not None
        heard.setdefault(received.source, []).append(received.tag)
    assert heard == {rank: list(range(count)) for rank in range(1, 40)}
    for thread in waiting:
        thread.join()
    for rank in ranks[::-1]:
        rank.finalize()
    assert list(tmp_path.iterdir()) == []


def test_two_ranks_that_speak_at_once_keep_their_order() -> None:
    """Each makes a connection of its own before it knows of the other's."""
    ends = links(2, "w")
    for number in range(100):
        for end in ends:
            end.send(1 - end.rank, number, b"")
    for end in ends:
        received = [end.receive(5.0) for _ in range(100)]
        assert [(each.source, each.tag) for each in received if each] == [
            (1 - end.rank, number) for number in range(100)
        ]
    for end in ends[::-1]:
        end.finalize()


def test_a_rank_waits_for_something_else_as_well() -> None:
    first, second = links(2, "v")
    ours, theirs = socket.socketpair()
    began = time.monotonic()
    with ours, theirs:
        theirs.send(b"x")
        assert first.receive(30.0, ours) is None
        ours.recv(1)
        second.send(0, 7, b"")
        received = first.receive(30.0, ours)
    assert received is not None
    assert received.tag == 7
    assert time.monotonic() - began < 10
    second.finalize()
    first.finalize()


def test_what_is_said_to_ranks_that_have_left_is_not_waited_for(tmp_path: Path) -> None:
    first, second, third = links(3, "u")
    first.send(1, 0, b"")
    assert second.receive(5.0) is not None
    for left in (second, third):  # the one had a connection, the other none
        left.finalize()
        first.send(left.rank, 0, b"to one that has left")
    assert first.receive(0.01) is None
    first.send(1, 0, b"again")
    assert first.flush(0.0)
    first.finalize()
    assert list(tmp_path.iterdir()) == []


def test_more_ranks_than_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda kind: (1024, 4096))
    with pytest.raises(WorldError, match=r"needs 5256 open files, .*, but the limit is 4096; raise it"):
        SocketLink(LaunchedRank(0, 5000, "torchrun", False), "t")


def test_several_hosts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "LOCAL_WORLD_SIZE", "2")
    with pytest.raises(WorldError, match="use mpiexec or srun"):
        SocketLink(LaunchedRank(0, 4, "torchrun", False), "z")


def test_two_runs_of_one_name_do_not_hear_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --standalone, torchrun calls every run "none"."""
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
        job.wait_for('"Released"')
        sockets = [each for worker in job.workers() for each in worker.net_connections("tcp")]
        listening = {each.laddr.ip for each in sockets if each.status == psutil.CONN_LISTEN}
        assert job.end(300.0) == 0, job.text()
    assert listening == {"127.0.0.1"}, "no other host can reach a group of one host"
    replay = told(directory)
    assert replay.leg.began.groups == ((1, 2),)
    assert replay.tested is not None
    assert judge(replay, RunFiles(directory)).valid
