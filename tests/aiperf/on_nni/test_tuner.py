"""What is written for NNI, and the world that its trials connect to; a real NNI is in tests/nni."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Timer
from time import sleep
from typing import Any

import pytest

import aiperf.on_nni
from aiperf.commands.run_options import RunRequest
from aiperf.config import load_preset, with_overrides
from aiperf.errors import WorldError
from aiperf.journal.run_files import RunFiles
from aiperf.on_nni import nni_world
from aiperf.on_nni import tuner as tuner_module
from aiperf.on_nni.description import description
from aiperf.on_nni.nni_world import NniWorld
from aiperf.on_nni.trial_messages import Over, ProcessBegan, call, hear, tell
from aiperf.on_nni.trial_process import NniChannel
from aiperf.on_nni.tuner import SearchTuner
from aiperf.ranks.world import Gone
from aiperf.tasks.images.tally import Classified
from aiperf.wire.layout import Place
from aiperf.wire.messages import Assign, CheckDevice, Quit, Setup, Validated
from aiperf.wire.reports import Finished
from aiperf.wire.trial import HyperParameters, Segment, State, Trial
from nas.bounded import LARGEST_BYTES
from tests.aiperf.ranks.test_relay import Worker
from tests.tables import ComesTo

HERE = Path(aiperf.on_nni.__file__).parent


@pytest.mark.contract
def test_the_description_whole(tmp_path: Path, as_it_was_read: Callable[[str, str], None]) -> None:
    config = with_overrides(load_preset("digits"), {"limits.max_trials": 8})
    asked = RunRequest("digits", None, 2.0, ("training.epochs=[1]",), {"random_seed": 3, "data.path": "/a b"})
    text = description(config, asked.words(), tmp_path / "run", 2)
    for path, name in (
        (sys.executable, "PYTHON"),
        (HERE, "CODE"),
        (tmp_path, "RUNS"),
        (Path.cwd(), "FOLDER"),
    ):
        text = text.replace(str(path), name)
    as_it_was_read(text, "description.yml")


class Listening:
    """Stands for the part of `nni` that a trial calls, and for its connection to the master."""

    def __init__(self) -> None:
        self.shown: list[float] = []
        self.final: list[float] = []
        self.report_intermediate_result, self.report_final_result = self.shown.append, self.final.append

    def send_bytes(self, data: bytes) -> None:
        pass


def validated(index: int, right: int) -> Validated:
    """So many right answers of four."""
    return Validated(Segment(0, 1, index, 4, 200, 1.0, Classified(4, right), 0.1), 0.0)


def test_nni_is_told_the_best_accuracy_and_of_a_failure_nothing(comes_to_what_was_read: ComesTo) -> None:
    def told(state: str, *rights: int) -> tuple[list[float], list[float], bool]:
        """What NNI shows meanwhile and at the end, and whether its trial has failed."""
        nni: Any = Listening()
        channel = NniChannel(nni, nni)
        for index, right in enumerate(rights):
            channel.send(validated(index, right))
        channel.send(Finished(0, 1, State[state], ""))
        return nni.shown, nni.final, channel.failed

    comes_to_what_was_read("told.txt", {"told": told})


def test_a_trial_outlives_the_manager_that_shows_it(caplog: pytest.LogCaptureFixture) -> None:
    """`nnictl stop` closes its port first."""

    def refused(accuracy: float) -> None:
        with socket.create_connection(("127.0.0.1", 1)):
            pass

    nni: Any = Listening()
    nni.report_intermediate_result = nni.report_final_result = refused
    channel = NniChannel(nni, nni)
    channel.send(validated(0, 3))
    channel.send(Finished(0, 1, State.STOPPED, ""))
    assert not channel.failed
    assert [record.getMessage().partition(": ")[0] for record in caplog.records] == [
        "the accuracy 0.7500 was not reported to NNI"
    ] * 2


TRIAL = Trial(0, None, (), HyperParameters(0.1, 8), 1, 1, 0)


def test_who_is_started_for_the_end_measures_no_fabric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would wait for an address, and get a request instead."""
    monkeypatch.setattr(nni_world, "WorkerProcess", Worker)
    monkeypatch.setattr(Worker, "started", [])
    places = tuple(Place(rank, (rank,), rank - 1, 2) for rank in (1, 2))
    with closing(NniWorld(RunFiles(tmp_path), places, "cpu")) as world:
        world.send_all(Setup(load_preset("digits"), {}, str(tmp_path), fabric_seconds=60.0))
        world.send(0, Assign(TRIAL, 1))  # its process takes the place of our own worker
        world.send(0, CheckDevice(1.0))
    assert [[type(each) for each in one.heard] for one in Worker.started] == [
        [Setup, Quit],
        [Setup, Quit],
        [Setup, CheckDevice, Quit],
    ]
    setups = [one.heard[0] for one in Worker.started]
    assert [setup.fabric_seconds for setup in setups if isinstance(setup, Setup)] == [60.0, 60.0, 0.0]


def test_a_process_that_ends_when_it_has_called_is_a_lost_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that NNI kills while it is given its trial."""
    monkeypatch.setattr(nni_world, "WorkerProcess", Worker)
    monkeypatch.setattr(nni_world, "tell", cut_off)
    with closing(NniWorld(RunFiles(tmp_path), (Place(1, (1,), 0, 1),), "cpu")) as world:
        world.send(0, Setup(load_preset("digits"), {}, str(tmp_path)))
        world.send(0, Assign(TRIAL, 1))
        world._next()
        with call(RunFiles(tmp_path)) as process:
            tell(process, ProcessBegan(0))
        assert world.receive(60) == (0, Gone("the process of trial 0 ended before it had finished"))


def cut_off(connection: Connection, word: object) -> None:
    raise BrokenPipeError


class Dispatcher:
    """Stands for NNI's, of which the tuner knows a method."""

    stopping = False

    def send_trial_callback(self, identifier: int, parameters: Any) -> None:
        raise AssertionError("a trial is returned, not sent")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[NniWorld]:
    """One of no groups: it never has a trial."""
    with closing(NniWorld(RunFiles(tmp_path), (), "cpu")) as world:
        yield world


@pytest.mark.usefixtures("world")
def test_a_tuner_that_waits_for_a_trial_sees_that_nni_stops(tmp_path: Path) -> None:
    """NNI waits for this thread before it says that the run ends."""
    tuner, dispatcher = SearchTuner([str(tmp_path)], str(tmp_path)), Dispatcher()
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(
            tuner.generate_multiple_parameters, [0, 1], st_callback=dispatcher.send_trial_callback
        )
        with pytest.raises(TimeoutError):
            asked.result(1.0)
        dispatcher.stopping = True
        assert asked.result(60) == []


@pytest.mark.timeout(20)
def test_a_signal_whose_handler_is_slow_leaves_the_master_its_time_limit(world: NniWorld) -> None:
    """As when `nnictl stop` comes to a busy machine while the master waits, and no message follows."""
    before = signal.signal(signal.SIGUSR1, lambda *_: sleep(0.3))
    try:
        Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        assert world.receive(0.25) is None
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("world")
def test_what_is_no_message_closes_its_connection_alone(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    comes_to_what_was_read: ComesTo,
) -> None:
    """And nobody calls a socket of another user."""
    files = RunFiles(tmp_path)

    def said(sent: bytes, word: str) -> str:
        """The line with this word: one about the last connection of the test before may come late."""
        with call(files) as stranger:
            with suppress(ConnectionError):  # it may be closed before all is sent
                stranger.send_bytes(sent)
            with pytest.raises((EOFError, ConnectionError)):
                stranger.recv_bytes()
        while not (lines := [each for each in caplog.messages if word in each]):
            sleep(0.01)
        return lines[0]

    comes_to_what_was_read("no_messages.txt", {"said": said, "LARGEST_BYTES": LARGEST_BYTES})
    with call(files) as own:
        tell(own, ProcessBegan(0))
        assert hear(own) == Over()
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    with pytest.raises(WorldError, match=r"socket: process \d+ belongs to .*; start the run again"):
        call(files)


def test_the_master_is_started_when_the_dispatcher_has_reached_its_manager_and_once(tmp_path: Path) -> None:
    tuner = SearchTuner(["--no-such-option", str(tmp_path)], str(tmp_path))
    assert tuner._started is None
    tuner.load_checkpoint()
    assert tuner._started is None
    tuner.update_search_space({})
    master = tuner._started
    assert master is not None
    tuner.update_search_space({})  # a person changed it on NNI's page
    assert tuner._started is master
    tuner._on_exit()
    assert master.poll() is not None


def test_a_master_that_does_not_stop_says_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tuner_module, "STOP_SECONDS", 0.2)
    tuner, begun = SearchTuner([str(tmp_path)], str(tmp_path)), tmp_path / "begun"
    deaf = "import pathlib, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    deaf += f"; pathlib.Path({str(begun)!r}).touch(); time.sleep(600)"
    tuner._words = [sys.executable, "-c", deaf]
    tuner.update_search_space({})
    while not begun.exists():
        sleep(0.05)
    tuner._on_exit()
    assert tuner._started is not None
    assert tuner._started.returncode == -signal.SIGABRT
    assert 'File "<string>", line 1' in capfd.readouterr().err
