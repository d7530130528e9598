"""The master's end of the wire to the ranks, with a wire that is a list."""

from __future__ import annotations

import signal
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest

from aiperf.errors import WorldError
from aiperf.journal.run_files import RunFiles
from aiperf.ranks import mpi, patience
from aiperf.ranks.link import Link, Received, Waited
from aiperf.ranks.mpi import MpiWorld, describe, dismiss, gather
from aiperf.ranks.shipping import is_piece, log_pieces, pieces
from aiperf.ranks.tree import HEAD, MISSING, goes_to_all, split
from aiperf.ranks.world import Gone
from aiperf.wire import messages
from aiperf.wire.clocks import ROUND_TRIPS
from aiperf.wire.layout import Bye, Describe, Described, Hello, Lost, MasterBeat, ToAll, layout
from aiperf.wire.messages import Assign, Evaluate, Quit, Setup, TimeOfDay, ToGroup, pack, unpack
from aiperf.wire.reports import Finished, FromGroup, Ready
from aiperf.wire.trial import HyperParameters, State, Trial
from tests.aiperf.training.test_worker import CONFIG
from tests.journals import READY
from tests.tables import ComesTo

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
    launcher: str = "torchrun"

    def send(self, rank: int, tag: int, data: bytes) -> None:
        if b'"AskTime"' in data:  # every rank answers at once
            number = unpack(ToGroup, data).number
            self.arrive(rank, tag, TimeOfDay(number, time.time() + 0.25))
        else:
            self.sent.append((rank, tag, data))

    def library(self) -> str:
        return ""

    def abandon(self) -> None: ...

    def flush(self, seconds: float) -> bool:
        return True

    def receive(self, seconds: float, beside: Waited | None = None) -> Received | None:
        return self.arriving.popleft() if self.arriving else None

    def arrive(self, source: int, tag: int, message: FromGroup | ToGroup) -> None:
        self.arriving.append(Received(source, tag, pack(message)))

    def said(self, family: type[ToGroup | FromGroup] = ToGroup) -> list[tuple[int, int, object]]:
        """What was sent to one rank."""
        direct = [each for each in self.sent if not is_piece(each[2]) and not goes_to_all(each[2])]
        self.sent.clear()
        return [(rank, tag, unpack(family, split(data)[1])) for rank, tag, data in direct]

    def said_to_all(self) -> list[tuple[int, ToAll]]:
        """What was sent to be given on, by receiver."""
        sent = [
            (rank, unpack(ToGroup, data[HEAD.size :])) for rank, _, data in self.sent if goes_to_all(data)
        ]
        self.sent.clear()
        return sent


def linked(wire: Wire) -> Link:
    return cast(Link, wire)


def setup(directory: Path) -> Setup:
    return Setup(CONFIG, {}, str(directory))


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


def heard(world: MpiWorld) -> object:
    """What the master has heard when all that was on its way has arrived."""
    return next(filter(None, (world.receive(0) for _ in range(10))), None)


# The master's end


def test_the_master_says_for_whom_it_waits_long_before_it_gives_up(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And gathers hosts in any order."""
    monkeypatch.setattr("socket.gethostname", lambda: "node1")
    monkeypatch.setattr(patience, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(mpi, "HELLO_SECONDS", 9.0)
    for rank in (3, 4, 2):
        wire.arrive(rank, 0, Hello(HOSTS[rank]))

    def receive(seconds: float) -> Received | None:
        if not wire.arriving and caplog.records:
            wire.arrive(1, 0, Hello(HOSTS[1]))
        return Wire.receive(wire, seconds)

    monkeypatch.setattr(wire, "receive", receive)
    assert gather(linked(wire)) == HOSTS
    said = "no message from the ranks [1] of 5; see what they print; waiting for 9 s more at most"
    assert [each.message for each in caplog.records] == [said]


def test_ranks_that_say_nothing_are_named(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi, "HELLO_SECONDS", 0.0)
    wire.arrive(1, 0, Hello("node1"))
    with pytest.raises(WorldError, match=r"no message from the ranks \[2, 3, 4\] of 5"):
        gather(linked(wire))
    wire.arrive(1, 0, Described(1, "a device"))
    with pytest.raises(WorldError, match="3 ranks did not say what device they have"):
        describe(linked(wire), PLACES)


def test_a_rank_that_dies_before_it_reports_is_named_when_the_launcher_warns_the_others(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mpi, "WARNED_SECONDS", 0.0)
    monkeypatch.setattr(mpi, "noted", lambda: [signal.SIGTERM])
    with pytest.raises(WorldError, match=r"^no message from the ranks \[1, 2, 3, 4\] of 5; see what"):
        gather(linked(wire))


Step = Callable[[Wire, MpiWorld], object]


def ready(rank: int, tag: int = 1) -> Step:
    return lambda wire, world: wire.arrive(rank, tag, replace(READY, rank=rank))


def lost(rank: int, reason: str) -> Step:
    return lambda wire, world: wire.arrive(rank, 1, Lost(reason))


def misses_a_message(rank: int) -> Step:
    return lambda wire, world: wire.arriving.append(Received(rank, 0, HEAD.pack(MISSING, 0, 0)))


def dead(*ranks: int) -> Step:
    return lambda wire, world: setattr(wire, "failed", frozenset(ranks))


def say(group: int | None, message: ToGroup) -> Step:
    return lambda wire, world: world.send_all(message) if group is None else world.send(group, message)


def restart(group: int) -> Step:
    return lambda wire, world: f"group {group} {'can' if world.restart(group) else 'cannot'} be started again"


def look(wire: Wire, world: MpiWorld) -> str:
    """What the master hears at once."""
    match world.receive(0):
        case group, Gone(reason):
            return f"group {group} is gone: {reason}"
        case group, Ready() as message:
            assert message == replace(READY, rank=message.rank)
            return f"rank {message.rank} of group {group} is ready"
        case heard:
            assert heard is None
            return "nothing"


def wait(wire: Wire, world: MpiWorld) -> str:
    """What it has heard when all that was on its way has arrived."""
    return next((heard for _ in range(10) if (heard := look(wire, world)) != "nothing"), "nothing")


def test_what_the_master_hears_and_what_is_said_to_ranks(
    files: RunFiles, comes_to_what_was_read: ComesTo
) -> None:
    """A group is spoken to by its leader, and any rank of it is heard. A dead rank takes its group and no
    other. What was said before a restart is not heard after it. Ranks that are dead, or of a lost group, give
    nothing on; at once, and not with the next beat."""

    def after(*steps: Step, children: bool = True) -> list[object]:
        """What comes of steps, one after the other, at the master of the groups (1, 2) and (3, 4)."""
        wire, found = Wire(), list[object]()
        world = MpiWorld(linked(wire), files, HOSTS, PLACES, children=children)
        assert wire.said() == [(place.rank, 0, place) for place in PLACES]
        for step in steps:
            outcome, to_all = step(wire, world), Counter[str]()
            found += [outcome] if outcome else []
            for rank, tag, data in wire.sent:
                if goes_to_all(data):
                    to_all[str(unpack(ToGroup, data[HEAD.size :]))] += 1
                else:
                    before, message = split(data)
                    found.append(f"to {rank}, tag {tag}, after {before}: {unpack(ToGroup, message)}")
            found += [f"to all {number}: {message}" for message, number in to_all.items()]
            wire.sent.clear()
        return found

    comes_to_what_was_read("master.txt", {**vars(messages), **globals(), "after": after})


def test_a_rank_is_ready_when_its_clock_was_compared(wire: Wire, world: MpiWorld) -> None:
    wire.arrive(4, 1, replace(READY, rank=4, wall_seconds=0.0))
    assert [world.receive(0) for _ in range(ROUND_TRIPS)] == [None] * ROUND_TRIPS
    wire.arrive(4, 1, Lost("killed by signal 9"))
    assert world.receive(0) == (1, replace(READY, rank=4, wall_seconds=0.0))
    clock = world.clock_of(4)
    assert clock.known
    assert abs(clock.offset_seconds - 0.25) <= clock.uncertainty_seconds


def test_weights_go_before_what_needs_them_to_a_group_apart(
    wire: Wire, world: MpiWorld, files: RunFiles
) -> None:
    files.weights_directory.mkdir(parents=True)
    files.weights(7).write_bytes(b"weights of 7")
    wire.arrive(3, 1, replace(READY, rank=3, sees_run=False))
    assert heard(world) is not None
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
    there, news = RunFiles(tmp_path / "there"), Finished(7, 1, State.COMPLETE, "", weights="hash")
    there.weights_directory.mkdir(parents=True)
    there.weights(7).write_bytes(b"weights of 7")

    def heard() -> object:
        for piece in pieces(there, 7):
            wire.arriving.append(Received(3, 1, piece))
        wire.arrive(3, 1, news)
        assert world.receive(0) is None
        return world.receive(0)

    assert heard() == (1, news)
    assert files.weights(7).read_bytes() == b"weights of 7"
    files.weights(7).unlink()
    files.weights_directory.rmdir()
    files.weights_directory.write_text("no directory")
    why = f"{files.weights(7)} cannot be written: File exists; choose another directory"
    assert heard() == (1, replace(news, state=State.FAILED, reason=why, weights=""))


def test_a_group_across_hosts_needs_a_shared_directory(wire: Wire, files: RunFiles) -> None:
    world = MpiWorld(linked(wire), files, HOSTS, layout(HOSTS, 4), children=True)
    wire.arrive(3, 1, replace(READY, rank=3, sees_run=False))
    with pytest.raises(WorldError, match="is not shared by node1, node2, and a group that spans hosts"):
        world.receive(0)


def test_without_its_launcher_a_job_cannot_go_on(wire: Wire, world: MpiWorld) -> None:
    wire.orphaned = True
    with pytest.raises(
        WorldError, match=r"^torchrun has exited, so the job cannot continue: aiperf-hpc resume /"
    ):
        world.receive(0)


def test_the_master_shows_that_it_lives(wire: Wire, world: MpiWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.receive(0)
    assert wire.sent == []
    monkeypatch.setattr(mpi, "HEARTBEAT_SECONDS", 0.0)
    world.receive(0)
    assert wire.said_to_all() == [(rank, ToAll((), (), {}, MasterBeat())) for rank in (1, 2, 3, 4)]


def test_all_that_live_are_sent_home_and_waited_for(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi, "BYE_SECONDS", 0.05)
    wire.failed = frozenset({2})
    wire.arrive(1, 1, Finished(7, 1, State.COMPLETE, ""))
    wire.arriving.append(Received(3, 0, HEAD.pack(MISSING, 0, 0)))
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


def test_whoever_did_not_hear_the_last_word_to_all_is_told_it_directly(
    wire: Wire, world: MpiWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mpi, "REPEAT_SECONDS", 0.05)
    monkeypatch.setattr(mpi, "BYE_SECONDS", 0.2)
    wire.arrive(1, 1, Bye())
    wire.arrive(4, 1, Bye())
    wire.arriving.append(Received(3, 0, HEAD.pack(MISSING, 0, 0)))
    world.close()
    quits = [rank for rank, _, data in wire.sent if goes_to_all(data)]
    assert quits == [1, 2, 3, 4, 3], "the last one asked for it"
    assert wire.said() == [(rank, 0, Quit()) for rank in (2, 3)]
    assert not dismiss(linked(wire))
    assert wire.sent == []


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


# Before a rehearsal


def test_every_rank_says_what_device_it_would_have(wire: Wire) -> None:
    for rank in (4, 2, 3, 1):
        wire.arrive(rank, 0, Described(rank, f"device {rank}", "cpu", 5))
    assert describe(linked(wire), PLACES) == tuple(
        Described(rank, f"device {rank}", "cpu", 5) for rank in (1, 2, 3, 4)
    )
    assert wire.said() == [(place.rank, 0, said) for place in PLACES for said in (place, Describe())]
