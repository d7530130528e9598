"""Both ends of the wire between master and ranks, with a wire that is a list."""

from __future__ import annotations

import socket
import time
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest

from aiperf.errors import WorldError
from aiperf.files import RunFiles
from aiperf.ranks import mpi, relay
from aiperf.ranks.link import Link, Received
from aiperf.ranks.mpi import MpiWorld, describe, dismiss, gather
from aiperf.ranks.relay import Post
from aiperf.ranks.shipping import is_piece, log_pieces, pieces
from aiperf.ranks.world import Gone
from aiperf.trial import HyperParameters, State, Trial
from aiperf.wire.layout import Bye, Describe, Described, Disband, Hello, Lost, MasterBeat, Place, layout
from aiperf.wire.messages import (
    Assign,
    Evaluate,
    Finished,
    FromGroup,
    Quit,
    Release,
    Setup,
    ToGroup,
    pack,
    unpack,
)
from tests.aiperf.groups import READY
from tests.aiperf.training.test_worker import CONFIG

HOSTS = ("node1", "node1", "node1", "node2", "node2")
PLACES = layout(HOSTS)
TRIAL = Trial(8, 7, (), HyperParameters(0.1, 8), 1, 1, 1)


@dataclass
class Wire:
    """A link whose other ends are this test."""

    rank: int = 0
    size: int = 5
    fault_tolerant: bool = False
    arriving: deque[Received] = field(default_factory=deque)
    sent: list[tuple[int, int, bytes]] = field(default_factory=list)
    failed: frozenset[int] = frozenset()
    left: set[int] = field(default_factory=set)
    dismissed: bool = False
    orphaned: bool = False

    def send(self, rank: int, tag: int, data: bytes) -> None:
        self.sent.append((rank, tag, data))

    def library(self) -> str:
        return ""

    def receive(self, seconds: float) -> Received | None:
        return self.arriving.popleft() if self.arriving else None

    def arrive(self, source: int, tag: int, message: FromGroup | ToGroup) -> None:
        self.arriving.append(Received(source, tag, pack(message)))

    def said(self, family: type[ToGroup | FromGroup] = ToGroup) -> list[tuple[int, int, object]]:
        found = [(rank, tag, unpack(family, data)) for rank, tag, data in self.sent if not is_piece(data)]
        self.sent.clear()
        return found


def linked(wire: Wire) -> Link:
    return cast(Link, wire)


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    return RunFiles(tmp_path / "run")


@pytest.fixture
def world(wire: Wire, files: RunFiles) -> MpiWorld:
    world = MpiWorld(linked(wire), files, HOSTS, PLACES, children=True)
    assert wire.said() == [(place.rank, 0, place) for place in PLACES]
    return world


# The master's end


def test_hosts_are_gathered_in_any_order(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "node1")
    for rank in (3, 1, 4, 2):
        wire.arrive(rank, 0, Hello(HOSTS[rank]))
    assert gather(linked(wire)) == HOSTS


def test_ranks_that_do_not_come_are_named(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi, "HELLO_SECONDS", 0.0)
    wire.arrive(1, 0, Hello("node1"))
    with pytest.raises(WorldError, match=r"no word came of the ranks \[2, 3, 4\] of 5"):
        gather(linked(wire))


def test_a_group_is_spoken_to_by_its_leader_and_any_rank_of_it_is_heard(wire: Wire, world: MpiWorld) -> None:
    assert world.groups == ((1, 2), (3, 4))
    world.send(1, Release(None))
    assert wire.said() == [(3, 1, Release(None))]
    wire.arrive(4, 1, replace(READY, rank=4))
    assert world.receive(0) == (1, replace(READY, rank=4))


def test_what_was_said_before_a_restart_is_not_heard_after_it(wire: Wire, world: MpiWorld) -> None:
    wire.arrive(2, 1, Lost("killed by signal 9"))
    assert world.receive(0) == (0, Gone("rank 2 on node1: killed by signal 9"))
    assert world.restart(0)
    wire.arrive(1, 1, Lost("the other one, too"))
    wire.arrive(1, 1, replace(READY, rank=1))
    assert world.receive(0) is None
    assert world.receive(0) is None
    wire.arrive(1, 2, replace(READY, rank=1))
    assert world.receive(0) == (0, replace(READY, rank=1))
    world.send(0, Release(None))
    assert wire.said() == [(1, 2, Release(None))]


def test_a_dead_rank_takes_its_group_and_no_other(wire: Wire, world: MpiWorld) -> None:
    wire.failed = frozenset({4})
    assert world.receive(0) == (1, Gone("rank 4 on node2 is dead"))
    assert wire.said() == [(3, 2, Disband()), (4, 2, Disband())]
    assert world.receive(0) is None
    assert not world.restart(1)
    wire.arrive(3, 1, Lost("the gradients do not come"))
    assert world.receive(0) is None
    world.send(1, Release(None))
    world.send(0, Release(None))
    assert wire.said() == [(1, 1, Release(None))]


def test_ranks_that_train_themselves_are_not_started_again(wire: Wire, files: RunFiles) -> None:
    world = MpiWorld(linked(wire), files, HOSTS, PLACES, children=False)
    assert not world.restart(0)


def test_weights_go_before_what_needs_them_to_a_group_apart(
    wire: Wire, world: MpiWorld, files: RunFiles
) -> None:
    files.weights_directory.mkdir(parents=True)
    files.weights(7).write_bytes(b"weights of 7")
    wire.arrive(3, 1, replace(READY, rank=3, sees_run=False))
    assert world.receive(0) is not None
    for message in (Assign(TRIAL, 1), Evaluate(7)):
        world.send(1, message)
        (piece_rank, _, piece), (rank, _, data) = wire.sent
        assert (piece_rank, rank) == (3, 3)
        assert piece.endswith(b"weights of 7")
        assert unpack(ToGroup, data) == message
        wire.sent.clear()
        world.send(0, message)
        assert len(wire.sent) == 1, "group 0 shares the directory"
        wire.sent.clear()


def test_weights_come_before_the_news_of_them(
    wire: Wire, world: MpiWorld, files: RunFiles, tmp_path: Path
) -> None:
    there = RunFiles(tmp_path / "there")
    there.weights_directory.mkdir(parents=True)
    there.weights(7).write_bytes(b"weights of 7")
    for piece in pieces(there, 7):
        wire.arriving.append(Received(3, 1, piece))
    wire.arrive(3, 1, Finished(7, 1, State.COMPLETE, "", weights="hash"))
    assert world.receive(0) is None
    assert world.receive(0) == (1, Finished(7, 1, State.COMPLETE, "", weights="hash"))
    assert files.weights(7).read_bytes() == b"weights of 7"

    files.weights(7).unlink()
    files.weights_directory.rmdir()
    files.weights_directory.write_text("no directory")
    for piece in pieces(there, 7):
        wire.arriving.append(Received(3, 1, piece))
    wire.arrive(3, 1, Finished(7, 1, State.COMPLETE, "", weights="hash"))
    assert world.receive(0) is None
    received = world.receive(0)
    assert received is not None
    finished = received[1]
    assert isinstance(finished, Finished)
    assert (finished.state, finished.weights) == (State.FAILED, "")
    assert "weights/7.safetensors cannot be written" in finished.reason


def test_a_group_across_hosts_needs_a_shared_directory(wire: Wire, files: RunFiles) -> None:
    world = MpiWorld(linked(wire), files, HOSTS, layout(HOSTS, 4), children=True)
    wire.arrive(3, 1, replace(READY, rank=3, sees_run=False))
    with pytest.raises(WorldError, match="is not shared by node1, node2, and a group that spans hosts"):
        world.receive(0)


def test_without_its_launcher_a_job_cannot_go_on(wire: Wire, world: MpiWorld) -> None:
    wire.orphaned = True
    with pytest.raises(WorldError, match="mpiexec is gone, as Open MPI's is when it loses a host"):
        world.receive(0)


def test_the_master_shows_that_it_lives(wire: Wire, world: MpiWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.receive(0)
    assert wire.said() == []
    monkeypatch.setattr(mpi, "HEARTBEAT_SECONDS", 0.0)
    world.receive(0)
    assert wire.said() == [(rank, 0, MasterBeat()) for rank in (1, 2, 3, 4)]


def test_all_that_live_are_sent_home_and_waited_for(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi, "BYE_SECONDS", 0.05)
    wire.failed = frozenset({2})
    wire.arrive(1, 1, Finished(7, 1, State.COMPLETE, ""))
    for rank in (1, 4):
        wire.arrive(rank, 1, Bye())
    assert not dismiss(linked(wire))
    assert wire.said() == [(rank, 0, Quit()) for rank in (1, 3, 4)]
    began = time.monotonic()
    monkeypatch.setattr(mpi, "BYE_SECONDS", 60.0)
    assert not dismiss(linked(wire)), "rank 3 has not answered"
    assert time.monotonic() - began < 1
    assert wire.said() == []
    wire.arrive(3, 1, Bye())
    wire.left.add(3)
    assert dismiss(linked(wire))


def test_logs_are_taken_until_all_have_left_or_no_more_come(
    wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, here = RunFiles(tmp_path / "there"), RunFiles(tmp_path / "here")
    there.witness("node2", 3).parent.mkdir(parents=True)
    there.witness("node2", 3).write_text("steps")
    monkeypatch.setattr(mpi, "BYE_SECONDS", 0.05)
    for piece in log_pieces(there.witness("node2", 3), 3):
        wire.arriving.append(Received(3, 1, piece))
    world = MpiWorld(linked(wire), here, HOSTS, PLACES, children=True)
    began = time.monotonic()
    world.close()
    assert time.monotonic() - began < 5
    assert here.witness("node2", 3).read_text() == "steps"
    assert not here.witness("node2", 4).exists(), "that rank did not answer"


# A rank's end


def setup(directory: Path) -> Setup:
    return Setup(CONFIG, {}, str(directory))


@pytest.fixture
def leader(wire: Wire) -> Post:
    wire.rank = 3
    post = Post(linked(wire), "cpu")
    wire.arrive(0, 0, PLACES[2])
    assert post.receive(0) == Place(3, (3, 4), 0, 2)
    assert [message for _, _, message in wire.said(FromGroup)] == [Hello(socket.gethostname())]
    return post


def test_a_leader_hands_on_what_is_for_its_group(wire: Wire, leader: Post, tmp_path: Path) -> None:
    for message in (setup(tmp_path), Release(1.0)):
        wire.arrive(0, 5, message)
        assert leader.receive(0) == message
        assert wire.said() == [(4, 5, message)]
    for message in (MasterBeat(), Disband(), Quit()):
        assert not leader.quit.is_set()
        wire.arrive(0, 5, message)
        leader.receive(0)
        assert wire.said() == []
    assert leader.quit.is_set()


def test_what_a_leader_hands_on_too_early_is_kept(wire: Wire, tmp_path: Path) -> None:
    post = Post(linked(wire), "cpu")
    wire.arrive(3, 1, setup(tmp_path))
    assert post.receive(0) is None
    wire.arrive(0, 0, PLACES[3])
    wire.arrive(3, 1, Release(1.0))
    assert [post.receive(0) for _ in range(3)] == [PLACES[3], setup(tmp_path), Release(1.0)]


def test_a_rank_speaks_for_the_incarnation_it_was_told(wire: Wire, leader: Post, tmp_path: Path) -> None:
    wire.arrive(0, 7, setup(tmp_path))
    leader.receive(0)
    wire.said()
    leader.send(replace(READY, rank=3))
    assert wire.said(FromGroup) == [(0, 7, replace(READY, rank=3))]


def test_a_rank_apart_sends_its_weights_and_drops_what_it_was_sent(
    wire: Wire, leader: Post, tmp_path: Path
) -> None:
    wire.arrive(0, 1, setup(tmp_path))
    leader.receive(0)
    leader.send(replace(READY, rank=3, sees_run=False))
    files = RunFiles(tmp_path)
    master = RunFiles(tmp_path / "master")
    master.weights_directory.mkdir(parents=True)
    master.weights(7).write_bytes(b"weights of 7")
    for piece in pieces(master, 7):
        wire.arriving.append(Received(0, 1, piece))
    wire.arrive(0, 1, Assign(TRIAL, 1))
    assert leader.receive(0) is None
    assert leader.receive(0) == Assign(TRIAL, 1)
    assert files.weights(7).read_bytes() == b"weights of 7"

    files.weights(8).write_bytes(b"weights of 8")
    wire.sent.clear()
    leader.send(Finished(8, 1, State.COMPLETE, "", weights="hash"))
    (_, _, piece), (_, _, data) = wire.sent
    assert piece.endswith(b"weights of 8")
    assert unpack(FromGroup, data) == Finished(8, 1, State.COMPLETE, "", weights="hash")
    assert files.kept_weights() == []


def test_a_rank_apart_hands_over_its_log_and_begins_it_with_the_run(
    wire: Wire, leader: Post, tmp_path: Path
) -> None:
    log = RunFiles(tmp_path).witness(socket.gethostname(), 3)
    log.parent.mkdir()
    log.write_text("of another run that had this directory")
    wire.arrive(0, 1, setup(tmp_path))
    leader.receive(0)
    assert not log.exists()
    log.write_text("of this one")
    wire.arrive(0, 2, setup(tmp_path))  # its group is started again
    leader.receive(0)
    leader.send(replace(READY, rank=3))
    assert not leader.send_log()
    leader.send(replace(READY, rank=3, sees_run=False))
    wire.sent.clear()
    assert leader.send_log()
    ((_, _, piece),) = wire.sent
    assert is_piece(piece)
    assert piece.endswith(b"of this one")


def test_in_a_further_leg_a_rank_goes_on_with_its_log(wire: Wire, leader: Post, tmp_path: Path) -> None:
    log = RunFiles(tmp_path).witness(socket.gethostname(), 3)
    log.parent.mkdir()
    log.write_text("of the leg before")
    wire.arrive(0, 1, replace(setup(tmp_path), leg=1))
    leader.receive(0)
    assert log.read_text() == "of the leg before"


def test_weights_that_cannot_be_sent_fail_the_trial(wire: Wire, leader: Post, tmp_path: Path) -> None:
    wire.arrive(0, 1, setup(tmp_path))
    leader.receive(0)
    leader.send(replace(READY, rank=3, sees_run=False))
    wire.sent.clear()
    leader.send(Finished(8, 1, State.COMPLETE, "", weights="hash"))
    ((_, _, finished),) = wire.said(FromGroup)
    assert isinstance(finished, Finished)
    assert (finished.state, finished.weights) == (State.FAILED, "")
    assert "weights/8.safetensors cannot be sent (No such file or directory)" in finished.reason


@pytest.mark.parametrize("sign", ["dead", "orphaned", "silent"])
def test_a_rank_notices_that_the_master_is_gone(
    sign: str, wire: Wire, leader: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert leader.receive(0) is None
    if sign == "dead":
        wire.failed = frozenset({0})
    elif sign == "orphaned":
        wire.orphaned = True
    else:
        monkeypatch.setattr(relay, "MASTER_SILENCE_SECONDS", -1.0)
    with pytest.raises(EOFError):
        leader.receive(0)


# Before a rehearsal


def test_every_rank_says_what_device_it_would_have(wire: Wire) -> None:
    for rank in (4, 2, 3, 1):
        wire.arrive(rank, 0, Described(rank, f"device {rank}", "cpu", 5))
    assert describe(linked(wire), PLACES) == tuple(
        Described(rank, f"device {rank}", "cpu", 5) for rank in (1, 2, 3, 4)
    )
    assert wire.said() == [(place.rank, 0, said) for place in PLACES for said in (place, Describe())]


def test_a_rank_that_says_nothing_of_its_device_ends_the_rehearsal(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mpi, "HELLO_SECONDS", 0.0)
    wire.arrive(1, 0, Described(1, "a device"))
    with pytest.raises(WorldError, match="3 ranks did not say what device they have"):
        describe(linked(wire), PLACES)


def test_a_rank_that_is_asked_looks_at_its_device(
    wire: Wire, leader: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "describe_device", lambda place, kind: Described(place.rank, kind))
    wire.arrive(0, 0, Describe())
    assert leader.receive(0) is None
    assert wire.said(FromGroup) == [(0, 0, Described(3, "cpu"))]
