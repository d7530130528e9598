"""A rank between the master and its worker: the wire is a list, the worker a script. Files go in pieces."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from aiperf.errors import WorldError
from aiperf.journal.run_files import RunFiles
from aiperf.ranks import relay, shipping
from aiperf.ranks.link import Received
from aiperf.ranks.relay import MpiChannel, Post, serve
from aiperf.ranks.shipping import Receiver, is_piece, log_pieces, pieces
from aiperf.tasks.images.tally import Classified
from aiperf.wire.layout import Bye, Describe, Described, Disband, Hello, Place
from aiperf.wire.messages import AskTime, Assign, Quit, Release, TimeOfDay, ToGroup, pack, unpack
from aiperf.wire.reports import Evaluated, Finished, FromGroup
from aiperf.wire.trial import State
from tests.aiperf.ranks.test_mpi import PLACES, TRIAL, Wire, linked, setup
from tests.journals import READY
from tests.tables import ComesTo

PLACE = PLACES[3]
TOLD = Evaluated(7, Classified(2, 1), 0.1)


class Worker:
    """Writes down what it hears, and says `says`. With an error there it does not start; of None it dies."""

    says: ClassVar[deque[FromGroup | OSError | None]] = deque()
    started: ClassVar[list[Worker]] = []

    def __init__(self, place: Place, device: str, log: Path) -> None:
        if Worker.says and isinstance(Worker.says[0], OSError):
            raise Worker.says.popleft()
        self.place, self.log, self.heard, self.ended = place, log, list[ToGroup](), ""
        assert device == "cpu"
        Worker.started.append(self)

    def send(self, data: bytes) -> None:
        self.heard.append(unpack(ToGroup, data))

    def receive(self, seconds: float) -> bytes | None:
        if not Worker.says:
            time.sleep(seconds)
            return None
        message = Worker.says.popleft()
        if message is None:
            raise EOFError
        return pack(message)

    def obituary(self) -> str:
        return "killed by signal 9"

    def end(self) -> None:
        self.ended = "by itself"

    def kill(self) -> None:
        self.ended = "killed"


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    monkeypatch.setattr("aiperf.ranks.process.WorkerProcess", Worker)
    return Wire(rank=4)


def serve_all(wire: Wire, place: ToGroup, *messages: tuple[int, ToGroup]) -> None:
    """A rank is told its place, and these messages with their tags."""
    Worker.started.clear()
    wire.arrive(0, 0, place)
    for tag, message in messages:
        wire.arrive(3, tag, message)
    serve(linked(wire), "cpu", "ddp")


def test_what_a_rank_says_and_what_becomes_of_its_workers(
    wire: Wire, tmp_path: Path, comes_to_what_was_read: ComesTo
) -> None:
    """After its first word; of each worker what it heard, how it ended, and its log. Ranks of a large run
    share the log of their host, and one without a place goes home."""

    def served(
        *messages: tuple[int, ToGroup],
        says: Iterable[FromGroup | OSError | None] = (),
        place: ToGroup = PLACE,
        size: int = 5,
    ) -> object:
        told, wire.size = (*messages, (0, Quit())), size
        Worker.says.extend(says)
        serve_all(wire, place, *told)
        hello, *said = [message for _, _, message in wire.said(FromGroup)]
        assert isinstance(hello, Hello)
        assert all(any(heard == one for _, one in told) for each in Worker.started for heard in each.heard)
        places = {(each.place, each.log.parent) for each in Worker.started}
        assert places <= {(PLACE, RunFiles(tmp_path).log("host").parent)}
        host = socket.gethostname()
        return said, [
            (
                *(type(each).__name__ for each in worker.heard),
                worker.ended,
                worker.log.name.replace(host, "host"),
            )
            for worker in Worker.started
        ]

    names = vars(relay) | globals() | {"served": served, "SETUP": setup(tmp_path)}
    comes_to_what_was_read("relayed.txt", names)


def test_a_rank_whose_master_is_gone_ends_its_worker_and_itself(
    wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exit(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(relay.os, "_exit", exit)
    take: Callable[[float], object] = wire.receive

    def receive(seconds: float, beside: object) -> object:
        wire.orphaned = not wire.arriving
        return take(seconds)

    monkeypatch.setattr(wire, "receive", receive)
    with pytest.raises(SystemExit) as left:
        serve_all(wire, PLACE, (1, setup(tmp_path)))
    assert left.value.code == 1
    assert Worker.started[0].ended == "killed"
    assert not any(isinstance(message, Bye) for _, _, message in wire.said(FromGroup))


# Its end of the wire


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


# Kept weights and logs in pieces


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 25])
def test_a_file_arrives_as_it_was(
    size: int, files: RunFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "PIECE_BYTES", 10)
    files.weights(7).write_bytes(bytes(range(size)))
    there = RunFiles(tmp_path / "there")
    receiver = Receiver(there)
    sent = list(pieces(files, 7))
    assert len(sent) == max(1, -(-size // 10))
    for number, piece in enumerate(sent):
        assert is_piece(piece)
        assert there.weights(7).exists() is False, f"whole or not at all, before piece {number}"
        receiver.take(piece)
    assert there.weights(7).read_bytes() == bytes(range(size))
    assert list(there.weights_directory.iterdir()) == [there.weights(7)]
    assert receiver.faults == {}
    assert not is_piece(pack(Quit()))


def test_a_log_arrives_under_the_name_of_its_host_unless_it_is_too_long(
    files: RunFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = files.witness("node2", 3)
    log.parent.mkdir()
    log.write_text("steps")
    there = RunFiles(tmp_path / "there")
    receiver = Receiver(there, ("node1", "node1", "node1", "node2"))
    for piece in log_pieces(log, 3):
        assert is_piece(piece)
        receiver.take(piece)
    assert there.witness("node2", 3).read_text() == "steps"
    assert there.kept_weights() == []
    monkeypatch.setattr(shipping, "LONGEST_LOG_BYTES", 4)
    assert list(log_pieces(log, 3)) == []
