"""Sockets between the ranks of one host: order, patience, ranks that die, and processes that are no rank."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from aiperf.errors import WorldError
from aiperf.ranks import torchrun
from aiperf.ranks.launcher import LaunchedRank
from aiperf.ranks.link import Link, Received
from aiperf.ranks.torchrun import HEAD, HostLink, _prefix, _socket_folder
from tests.tables import ComesTo


@pytest.fixture(autouse=True)
def above(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a short name, as sockets need it, in which `tmp` is TMPDIR."""
    with tempfile.TemporaryDirectory(prefix="a") as folder:
        (Path(folder) / "tmp").mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(Path(folder) / "tmp"))
        yield Path(folder)


def linked(rank: int, run_id: str = "x", size: int = 3) -> HostLink:
    return HostLink(LaunchedRank(rank, size, "torchrun", False), run_id)


def links(size: int, run_id: str = "x") -> list[HostLink]:
    return [linked(rank, run_id, size) for rank in range(size)]


def leave(*ranks: HostLink) -> None:
    """All leave, the master last, and nothing of them stays."""
    for link in ranks[::-1]:
        link.finalize()


def received(link: HostLink, num: int = 1) -> list[Received]:
    found = [link.receive(10.0) for _ in range(num)]
    return [each for each in found if each is not None]


def lost(master: Link) -> frozenset[int]:
    """The ranks whose death is noticed first; nothing else arrives."""
    until = time.monotonic() + 10.0
    while not master.failed and time.monotonic() < until:
        assert master.receive(0.05) is None
    return frozenset(master.failed)


def killed(link: HostLink) -> None:
    """The kernel closes its sockets, and nothing else happens."""
    for key in list(link._selector.get_map().values()):
        assert isinstance(key.fileobj, socket.socket)
        key.fileobj.close()
    link._selector.close()


def test_messages_keep_their_order_and_wait_for_whom_is_late(above: Path) -> None:
    first = linked(0)
    sent = [bytes([number]) * (number * 1000) for number in range(200)]
    sent += [bytes(range(256)) * 100_000, b"", b"small again"]
    for data in sent:  # more than the kernel holds, to a rank that is not there yet
        first.send(1, 7, data)
    second = linked(1)
    flushing = threading.Thread(target=first.flush, args=(30.0,))
    flushing.start()
    assert received(second, len(sent)) == [Received(0, 7, data) for data in sent]
    flushing.join()
    leave(first, second)
    assert list((above / "tmp").iterdir()) == []


def test_many_ranks_wait_for_one_that_reads_slowly() -> None:
    """Nothing is lost, each one's order is kept, and who waits takes no time of a processor."""
    ranks = links(40)
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
    for message in received(ranks[0], 39 * count):
        heard.setdefault(message.source, []).append(message.tag)
    assert heard == {rank: list(range(count)) for rank in range(1, 40)}
    for thread in waiting:
        thread.join()
    leave(*ranks)


def test_two_ranks_that_speak_at_once_keep_their_order() -> None:
    """Each makes a connection of its own before it knows of the other's."""
    ends = links(2)
    for number in range(100):
        for end in ends:
            end.send(1 - end.rank, number, b"")
    for end in ends:
        expected = [(1 - end.rank, number) for number in range(100)]
        assert [(each.source, each.tag) for each in received(end, 100)] == expected
    leave(*ends)


def test_a_rank_waits_for_something_else_as_well() -> None:
    first, second = links(2)
    ours, theirs = socket.socketpair()
    began = time.monotonic()
    with ours, theirs:
        theirs.send(b"x")
        assert first.receive(30.0, ours) is None
        ours.recv(1)
        second.send(0, 7, b"")
        assert first.receive(30.0, ours) == Received(1, 7, b"")
    assert time.monotonic() - began < 10
    leave(first, second)


def test_what_is_said_to_ranks_that_have_left_is_not_waited_for(above: Path) -> None:
    first, second, third = links(3)
    first.send(1, 0, b"")
    assert received(second)
    for left in (second, third):  # the one had a connection, the other none
        left.finalize()
        first.send(left.rank, 0, b"to one that has left")
    assert first.receive(0.01) is None
    first.send(1, 0, b"again")
    assert first.flush(0.0)
    first.finalize()
    assert list((above / "tmp").iterdir()) == []


def test_what_sockets_cannot_do_is_refused(above: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as few:
        few.setattr("resource.getrlimit", lambda kind: (1024, 4096))
        with pytest.raises(WorldError, match=r"needs 5256 open files, .*, but the limit is 4096; raise it"):
            linked(0, size=5000)
    (long := above / ("x" * 100)).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with pytest.raises(WorldError, match="set TMPDIR to a shorter path"):
        linked(0)


def test_two_runs_of_one_name_do_not_hear_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --standalone, torchrun calls every run "none"."""
    monkeypatch.setenv("MASTER_PORT", "29500")
    first = links(2, "none")
    monkeypatch.setenv("MASTER_PORT", "29501")
    second = links(2, "none")
    first[0].send(1, 0, b"of the first")
    assert second[1].receive(0.2) is None
    assert received(first[1])
    leave(*first)
    leave(*second)


# Ranks that die


def test_the_master_notices_the_death_of_a_rank_and_only_that() -> None:
    master, second, third = links(3)
    for rank in (second, third):
        rank.send(0, 0, b"here")
        master.send(rank.rank, 0, b"and here")
        assert received(rank)
        assert received(master)
    third.send(0, 0, b"its last words")
    killed(third)
    assert [each.data for each in received(master)] == [b"its last words"]
    assert lost(master) == {2}
    master.dismissed = True
    second.finalize()
    assert master.receive(0.1) is None
    assert master.failed == {2}
    master.finalize()


def test_who_remains_removes_the_sockets_of_the_dead(above: Path) -> None:
    """The master and another rank were killed, and the last one leaves in an orderly way or by force."""
    ranks = links(3)
    for dead in ranks[:2]:
        killed(dead)
    assert [path.name for path in above.rglob("[012]")] != []
    ranks[2].abandon()
    assert list((above / "tmp").iterdir()) == []
    killed(ranks[2])


def test_who_starts_next_removes_what_is_dead_and_its_own(
    above: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, alive, empty, other = (_socket_folder(name) for name in ("dead", "alive", "empty", "other"))
    for rank in range(3):
        killed(linked(rank, "dead"))
    (dead / "1").rename(dead / "1.left")
    living = links(2, "alive")
    killed(living[1])
    (other / "0").write_text("a file")
    (outside := above / "outside").mkdir()
    (link := above / "tmp" / f"{_prefix()}link").symlink_to(outside)
    other_user = above / "tmp" / f"aiperf-hpc-{os.getuid() + 1}-dead"
    other_host = above / "tmp" / f"aiperf-hpc-{os.getuid()}-host-dead"  # where TMPDIR is shared by hosts
    for foreign in (other_user, other_host):
        foreign.mkdir()
    linked(0, "young").finalize()
    assert dead.exists(), "its ranks may be about to listen"
    monkeypatch.setattr(torchrun, "YOUNG_SECONDS", -1.0)
    linked(0, "next").finalize()
    assert set((above / "tmp").iterdir()) == {alive, other, link, other_user, other_host}
    assert not empty.exists()
    assert outside.exists()
    living[0].finalize()


# Processes that are no rank: planted folders, other users, frames of no rank


def test_a_planted_folder_is_refused_and_nothing_outside_is_deleted(above: Path) -> None:
    """What else may be planted: tests/aiperf/host/planted.txt."""
    folder, outside = _socket_folder("x"), above / "outside"
    folder.rmdir()
    outside.mkdir()
    (outside / "0").write_text("precious")
    folder.symlink_to(outside)
    with pytest.raises(WorldError) as refused:
        linked(0)
    assert str(refused.value) == f"{folder} is a symbolic link; set TMPDIR to a folder of your own"
    assert (outside / "0").read_text() == "precious"


@pytest.mark.parametrize("run_id", ["", "..", "../../x", "a/b", "\udcff", "x" * 300])
def test_the_folder_is_in_tmpdir_whatever_the_run_is_called(run_id: str, above: Path) -> None:
    first, second = links(2, run_id)
    second.send(0, 0, b"heard")
    assert received(first)
    (folder,) = (above / "tmp").iterdir()
    assert folder.lstat().st_mode & 0o777 == 0o700
    leave(first, second)
    assert [path.name for path in above.rglob("*")] == ["tmp"]


SPEAK = """
import socket, sys
with socket.socket(socket.AF_UNIX) as stranger:
    stranger.connect(sys.argv[1])
    stranger.sendall(bytes.fromhex(sys.argv[2]) + b"x")
"""


def test_who_is_no_rank_is_not_heard_and_costs_the_ranks_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, comes_to_what_was_read: ComesTo
) -> None:
    """Frames of no rank, another process with the number of one, and a process of another user."""
    first, second = linked(0), linked(1)
    second.send(0, 7, b"from a rank")
    assert received(first) == [Received(1, 7, b"from a rank")]

    def line() -> str:
        assert first.receive(0.1) is None
        (said,) = caplog.messages
        caplog.clear()
        return re.sub("belongs to .*", "belongs to …", said.replace(f"process {os.getpid()}", "this process"))

    def refused(frame: bytes, user: int = os.getuid()) -> str:
        with monkeypatch.context() as other, socket.socket(socket.AF_UNIX) as stranger:
            other.setattr(os, "getuid", lambda: user)
            stranger.settimeout(10)
            stranger.connect(str(first._path(0)))
            stranger.sendall(frame + b"x")
            said = line()
            with suppress(ConnectionResetError):
                assert stranger.recv(1) == b"", "closed"
        return said

    def of_another_process(frame: bytes) -> str:
        subprocess.run([sys.executable, "-I", "-c", SPEAK, first._path(0), frame.hex()], check=True)
        return re.sub("^.*: it sent", "… it sent", line())

    names = {"HEAD": HEAD, "ANOTHER": os.getuid() + 1}
    own = {"refused": refused, "of_another_process": of_another_process}
    comes_to_what_was_read("frames.txt", names | own)
    second.send(0, 8, b"from it again")
    assert [each.tag for each in received(first)] == [8]
    first.send(1, 9, b"to it")
    assert received(second)
    leave(first, second)
