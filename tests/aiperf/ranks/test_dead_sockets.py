"""Ranks under torchrun that die: the master notices it, and no folder of sockets stays behind."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiperf.errors import WorldError
from aiperf.ranks import mpi, torchrun
from aiperf.ranks.launcher import LaunchedRank
from aiperf.ranks.mpi import gather
from aiperf.ranks.torchrun import SocketLink, _prefix, _socket_folder
from aiperf.wire.layout import Hello
from aiperf.wire.messages import pack


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """TMPDIR, with a short name, as sockets need it."""
    with tempfile.TemporaryDirectory(prefix="a") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
        yield Path(folder)


def linked(rank: int, run_id: str = "x") -> SocketLink:
    return SocketLink(LaunchedRank(rank, 3, "torchrun", False), run_id)


def killed(link: SocketLink) -> None:
    """The kernel closes its sockets, and nothing else happens."""
    for key in list(link._selector.get_map().values()):
        assert isinstance(key.fileobj, socket.socket)
        key.fileobj.close()
    link._selector.close()


def test_the_master_notices_the_death_of_a_rank_and_only_that() -> None:
    master, second, third = (linked(rank) for rank in range(3))
    for rank in (second, third):
        rank.send(0, 0, b"here")
        master.send(rank.rank, 0, b"and here")
        assert rank.receive(5.0) is not None
        assert master.receive(5.0) is not None
    third.send(0, 0, b"its last words")
    killed(third)
    received = master.receive(5.0)
    assert received is not None
    assert received.data == b"its last words"
    until = time.monotonic() + 10.0
    while not master.failed and time.monotonic() < until:
        assert master.receive(10.0) is None
    assert master.failed == {2}
    master.dismissed = True
    second.finalize()
    assert master.receive(0.1) is None
    assert master.failed == {2}
    master.finalize()


def test_a_rank_that_dies_before_it_reports_is_named_when_the_launcher_ends_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mpi, "WARNED_SECONDS", 0.2)
    monkeypatch.setattr(mpi, "noted", lambda: [signal.SIGTERM])
    master, second = linked(0), linked(1)
    second.send(0, 0, pack(Hello("node1")))
    with pytest.raises(WorldError, match=r"^no message from the ranks \[2\] of 3; see their output above$"):
        gather(master)
    second.finalize()
    master.finalize()


def test_who_remains_removes_the_sockets_of_the_dead(temporary: Path) -> None:
    """The master and another rank were killed, and the last one leaves in an orderly way or by force."""
    ranks = [linked(rank) for rank in range(3)]
    for dead in ranks[:2]:
        killed(dead)
    assert [path.name for path in temporary.rglob("[012]")] != []
    ranks[2].abandon()
    assert list(temporary.iterdir()) == []
    killed(ranks[2])


def test_who_starts_next_removes_what_is_dead_and_its_own(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, alive, empty, other = (_socket_folder(name) for name in ("dead", "alive", "empty", "other"))
    for rank in range(3):
        killed(linked(rank, "dead"))
    (dead / "1").rename(dead / "1.left")
    living = [linked(rank, "alive") for rank in range(2)]
    killed(living[1])
    (other / "0").write_text("a file")
    outside = temporary / "outside"
    outside.mkdir()
    link = temporary / f"{_prefix()}link"
    link.symlink_to(outside)
    other_user = temporary / f"aiperf-hpc-{os.getuid() + 1}-dead"
    other_host = temporary / f"aiperf-hpc-{os.getuid()}-host-dead"  # where TMPDIR is shared by hosts
    for foreign in (other_user, other_host):
        foreign.mkdir()
    linked(0, "young").finalize()
    assert dead.exists(), "its ranks may be about to listen"
    monkeypatch.setattr(torchrun, "YOUNG_SECONDS", -1.0)
    linked(0, "next").finalize()
    left = {path.name for path in temporary.iterdir()}
    assert left == {path.name for path in (alive, other, outside, link, other_user, other_host)}
    assert not empty.exists()
    living[0].finalize()
