"""A rank between the master and its worker: the wire is a list, the worker a script."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

from aiperf.journal.run_files import RunFiles
from aiperf.ranks import relay
from aiperf.ranks.relay import serve
from aiperf.tasks.images.tally import Classified
from aiperf.wire.layout import Bye, Disband, Hello, Lost, Place
from aiperf.wire.messages import Quit, Release, ToGroup, pack, unpack
from aiperf.wire.reports import Evaluated, FromGroup
from tests.aiperf.ranks.test_mpi import PLACES, Wire, linked, setup

PLACE = PLACES[3]
TOLD = Evaluated(7, Classified(2, 1), 0.1)


class Worker:
    """Writes down what it hears; says `says`, then nothing, or dies when that is None."""

    says: ClassVar[deque[FromGroup | None]] = deque()
    started: ClassVar[list[Worker]] = []

    def __init__(self, place: Place, device: str, log: Path) -> None:
        self.place, self.device, self.log = place, device, log
        self.heard: list[ToGroup] = []
        self.ended = ""
        Worker.started.append(self)

    def send(self, data: bytes) -> None:
        self.heard.append(unpack(ToGroup, data))

    def receive(self, seconds: float) -> bytes | None:
        if not Worker.says:
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
    monkeypatch.setattr(Worker, "says", deque())
    monkeypatch.setattr(Worker, "started", [])
    wire = Wire(rank=4)
    monkeypatch.setattr(wire, "flush", lambda seconds: True, raising=False)
    wire.arrive(0, 0, PLACE)
    return wire


def served(wire: Wire, *messages: tuple[int, ToGroup]) -> list[object]:
    """What the rank says after its first word, of these messages with their tags, and of Quit."""
    for tag, message in (*messages, (0, Quit())):
        wire.arrive(3, tag, message)
    serve(linked(wire), "cpu", "ddp")
    hello, *said = [message for _, _, message in wire.said(FromGroup)]
    assert isinstance(hello, Hello)
    return said


def test_a_worker_hears_its_group_and_is_heard(wire: Wire, tmp_path: Path) -> None:
    Worker.says.append(TOLD)
    assert served(wire, (1, setup(tmp_path)), (1, Release(1.0))) == [TOLD, Bye()]
    (worker,) = Worker.started
    assert worker.heard == [setup(tmp_path), Release(1.0), Quit()]
    assert (worker.place, worker.device, worker.ended) == (PLACE, "cpu", "by itself")
    assert worker.log.name.endswith(".rank4.log")
    assert worker.log.parent == RunFiles(tmp_path).log("host").parent


def test_ranks_of_a_large_run_share_the_log_of_their_host(wire: Wire, tmp_path: Path) -> None:
    wire.size = relay.RANKS_WITH_A_LOG + 1
    served(wire, (1, setup(tmp_path)))
    assert ".rank4" not in Worker.started[0].log.name


def test_a_group_that_begins_anew_has_a_new_worker(wire: Wire, tmp_path: Path) -> None:
    served(wire, (1, setup(tmp_path)), (2, setup(tmp_path)), (2, Release(1.0)))
    first, second = Worker.started
    assert (first.heard, first.ended) == ([setup(tmp_path)], "killed")
    assert (second.heard, second.ended) == ([setup(tmp_path), Release(1.0), Quit()], "by itself")


def test_of_a_dead_worker_the_master_is_told_once(wire: Wire, tmp_path: Path) -> None:
    Worker.says.append(None)
    said = served(wire, (1, setup(tmp_path)), (1, Release(1.0)))
    assert said == [Lost("killed by signal 9"), Bye()]
    (worker,) = Worker.started
    assert (worker.heard, worker.ended) == ([setup(tmp_path)], "killed")


def test_the_rest_of_a_group_that_lost_a_rank_stops_and_waits(wire: Wire, tmp_path: Path) -> None:
    assert served(wire, (1, setup(tmp_path)), (2, Disband()), (2, Release(1.0))) == [Bye()]
    (worker,) = Worker.started
    assert worker.ended == "killed"
    assert worker.heard == [setup(tmp_path)]


def test_a_worker_that_cannot_be_started_is_told(
    wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(place: Place, device: str, log: Path) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr("aiperf.ranks.process.WorkerProcess", refuse)
    assert served(wire, (1, setup(tmp_path))) == [Lost("no worker can be started: no more processes"), Bye()]


def test_a_rank_without_a_place_goes_home(wire: Wire) -> None:
    wire.arriving.clear()
    wire.arrive(0, 0, Quit())
    serve(linked(wire), "cpu", "ddp")
    assert [message for _, _, message in wire.said(FromGroup)][1:] == [Bye()]
    assert Worker.started == []


def test_a_rank_whose_master_is_gone_ends_its_worker_and_itself(
    wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exit(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(relay.os, "_exit", exit)
    wire.arrive(3, 1, setup(tmp_path))
    take: Callable[[float], object] = wire.receive

    def receive(seconds: float, beside: object) -> object:
        wire.orphaned = not wire.arriving
        return take(seconds)

    monkeypatch.setattr(wire, "receive", receive)
    with pytest.raises(SystemExit) as left:
        serve(linked(wire), "cpu", "ddp")
    assert left.value.code == 1
    assert Worker.started[0].ended == "killed"
    assert not any(isinstance(message, Bye) for _, _, message in wire.said(FromGroup))
