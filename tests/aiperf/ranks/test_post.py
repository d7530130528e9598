"""A rank's end of the wire to the master, with a wire that is a list."""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.errors import WorldError
from aiperf.journal.run_files import RunFiles
from aiperf.ranks import relay
from aiperf.ranks.link import Received
from aiperf.ranks.relay import MpiChannel, Post
from aiperf.ranks.shipping import is_piece, pieces
from aiperf.wire.layout import Describe, Described, Disband, Hello, Place
from aiperf.wire.messages import AskTime, Assign, Quit, Release, TimeOfDay, unpack
from aiperf.wire.reports import Finished, FromGroup
from aiperf.wire.trial import State
from tests.aiperf.ranks.test_mpi import PLACES, TRIAL, Wire, linked, setup
from tests.journals import READY


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def leader(wire: Wire) -> Post:
    wire.rank = 3
    leader = Post(linked(wire), "cpu")
    wire.arrive(0, 0, PLACES[2])
    assert leader.receive(0) == Place(3, (3, 4), 0, 2, host_index=1, num_hosts=2)
    assert [message for _, _, message in wire.said(FromGroup)] == [Hello(socket.gethostname())]
    return leader


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    files = RunFiles(tmp_path)
    files.weights_directory.mkdir()
    return files


@pytest.fixture
def apart(wire: Wire, leader: Post, files: RunFiles) -> Post:
    """One that does not see the master's run directory."""
    wire.arrive(0, 1, setup(files.directory))
    leader.receive(0)
    leader.send(replace(READY, rank=3, sees_run=False))
    wire.sent.clear()
    return leader


def test_a_leader_hands_on_what_is_for_its_group(wire: Wire, leader: Post, tmp_path: Path) -> None:
    for message in (setup(tmp_path), Release(1.0)):
        wire.arrive(0, 5, message)
        assert leader.receive(0) == message
        assert wire.said() == [(4, 5, message)]
    for message in (Disband(), Quit()):
        assert not leader.quit.is_set()
        wire.arrive(0, 5, message)
        leader.receive(0)
        assert wire.said() == []
    assert leader.quit.is_set()


def test_a_rank_says_the_time_of_day_at_once(wire: Wire) -> None:
    """Whatever else waits for its turn: here not even its place is known."""
    post, began = Post(linked(wire), "cpu"), time.time()
    wire.said(FromGroup)
    wire.arrive(0, 3, AskTime(7))
    assert post.receive(0) is None
    ((rank, tag, answer),) = wire.said(FromGroup)
    assert isinstance(answer, TimeOfDay)
    assert (rank, tag, answer.number) == (0, 3, 7)
    assert began <= answer.wall_seconds <= time.time()


def test_what_a_leader_hands_on_too_early_is_kept(wire: Wire, tmp_path: Path) -> None:
    follower = Post(linked(wire), "cpu")
    wire.arrive(3, 1, setup(tmp_path))
    assert follower.receive(0) is None
    wire.arrive(0, 0, PLACES[3])
    wire.arrive(3, 1, Release(1.0))
    assert [follower.receive(0) for _ in range(3)] == [PLACES[3], setup(tmp_path), Release(1.0)]


def test_a_rank_speaks_for_the_incarnation_it_was_told(wire: Wire, leader: Post, tmp_path: Path) -> None:
    wire.arrive(0, 7, setup(tmp_path))
    leader.receive(0)
    wire.said()
    leader.send(replace(READY, rank=3))
    assert wire.said(FromGroup) == [(0, 7, replace(READY, rank=3))]


def test_a_rank_apart_sends_its_weights_and_drops_what_it_was_sent(
    wire: Wire, apart: Post, files: RunFiles, tmp_path: Path
) -> None:
    master = RunFiles(tmp_path / "master")
    master.weights_directory.mkdir(parents=True)
    master.weights(7).write_bytes(b"weights of 7")
    for piece in pieces(master, 7):
        wire.arriving.append(Received(0, 1, piece))
    wire.arrive(0, 1, Assign(TRIAL, 1))
    assert apart.receive(0) is None
    assert apart.receive(0) == Assign(TRIAL, 1)
    assert files.weights(7).read_bytes() == b"weights of 7"
    files.weights(8).write_bytes(b"weights of 8")
    wire.sent.clear()
    done = Finished(8, 1, State.COMPLETE, "", weights="hash")
    apart.send(done)
    (_, _, piece), (_, _, data) = wire.sent
    assert piece.endswith(b"weights of 8")
    assert unpack(FromGroup, data) == done
    assert files.kept_weights() == []

    wire.sent.clear()
    apart.send(done)  # whose file is gone
    why = f"{files.weights(8)} cannot be sent (No such file or directory)"
    ((_, _, failed),) = wire.said(FromGroup)
    assert isinstance(failed, Finished)
    assert (failed.state, failed.weights, failed.reason.partition(";")[0]) == (State.FAILED, "", why)


def test_a_rank_apart_keeps_weights_that_another_child_will_read(
    wire: Wire, apart: Post, files: RunFiles
) -> None:
    files.weights(7).write_bytes(b"weights of 7")
    children = [replace(TRIAL, number=number, parent=7) for number in (8, 9)]
    for child in children:
        wire.arrive(0, 1, Assign(child, 1))
        apart.receive(0)
    for child in children:
        assert files.weights(7).exists()
        apart.send(Finished(child.number, 1, State.STOPPED, "the run ended"))
    assert not files.weights(7).exists()


@pytest.mark.parametrize(("leg", "text"), [(0, ""), (1, "of another leg, or of another run")])
def test_a_rank_begins_its_log_with_the_run_goes_on_in_a_further_leg_and_hands_it_over_if_apart(
    leg: int, text: str, wire: Wire, leader: Post, tmp_path: Path
) -> None:
    log = RunFiles(tmp_path).witness(socket.gethostname(), 3)
    log.parent.mkdir()
    log.write_text("of another leg, or of another run")
    wire.arrive(0, 1, replace(setup(tmp_path), leg=leg))
    leader.receive(0)
    assert (log.read_text() if log.exists() else "") == text
    log.write_text("of this one")
    wire.arrive(0, 2, replace(setup(tmp_path), leg=leg))  # its group is started again
    leader.receive(0)
    leader.send(replace(READY, rank=3))
    assert not leader.send_log()
    leader.send(replace(READY, rank=3, sees_run=False))
    wire.sent.clear()
    assert leader.send_log()
    ((_, _, piece),) = wire.sent
    assert is_piece(piece)
    assert piece.endswith(b"of this one")


def failing(seconds: float, beside: object = None) -> Received | None:
    raise WorldError("MPI failed")


@pytest.mark.parametrize("sign", ["dead", "orphaned", "silent", "failing"])
def test_a_rank_notices_that_the_master_or_mpi_is_gone(
    sign: str, wire: Wire, leader: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "LISTEN_SECONDS", 0.01)
    assert leader.receive(0) is None
    if sign == "dead":
        wire.failed = frozenset({0})
    elif sign == "orphaned":
        wire.orphaned = True
    elif sign == "silent":
        monkeypatch.setattr(relay, "MASTER_SILENCE_SECONDS", -1.0)
    else:
        monkeypatch.setattr(leader.link, "receive", failing)
    with pytest.raises(WorldError if sign == "failing" else EOFError):
        leader.receive(0)
    channel = MpiChannel(leader)  # of a worker in the rank
    with pytest.raises(EOFError):
        channel.receive()
    with pytest.raises(EOFError):
        channel.wait_for_quit()


def test_a_rank_that_is_asked_looks_at_its_device(
    wire: Wire, leader: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "device_at", lambda place, kind, pretend: Described(place.rank, kind))
    wire.arrive(0, 0, Describe())
    assert leader.receive(0) is None
    assert wire.said(FromGroup) == [(0, 0, Described(3, "cpu"))]


@pytest.mark.contract
def test_a_worker_in_the_rank_hears_until_the_end_of_the_run(
    wire: Wire, leader: Post, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "LISTEN_SECONDS", 0.01)
    for message in (setup(tmp_path), Release(1.0), Quit()):
        wire.arrive(0, 1, message)
    channel = MpiChannel(leader)
    assert [channel.receive() for _ in range(3)] == [setup(tmp_path), Release(1.0), Quit()]
    channel.wait_for_quit()
