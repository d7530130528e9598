"""The drivers of the conduct on a virtual clock: what the master hears of a script from each of them.

A worker that trains, by itself or as one rank of a group, has real steps, a real preparation and real files;
a step and a validation take as long on its clock as a script says, and validations come out as there."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import aiperf.training.train
import aiperf.training.worker
from aiperf.data import Data, load
from aiperf.device import bind
from aiperf.parallel.parallel import Parallel, Solo
from aiperf.pretending.assumptions import Spread, StartUp, Storage, Trials
from aiperf.pretending.group_model import Pretended
from aiperf.ranks.world import ALONE
from aiperf.simulation.simulated_group import SimulatedGroup
from aiperf.simulation.simulated_machine import SimulatedMachine
from aiperf.training.built_trial import BuiltTrial, Rank, build
from aiperf.training.driver import Driver
from aiperf.training.evaluation import evaluate
from aiperf.training.pretending_worker import PretendingWorker
from aiperf.training.worker import Worker
from aiperf.wire.layout import Place
from aiperf.wire.messages import Join, Meeting, Quit, Setup, ToGroup
from aiperf.wire.reports import FromGroup
from nas.record import graph_to_json
from nas.weights import initial
from tests.aiperf.conduct.courses import (
    SCRIPTS,
    SEED,
    STEP_SECONDS,
    VALIDATE_SECONDS,
    Script,
    VirtualClock,
    heard,
)
from tests.aiperf.simulation.simulated import steady, surroundings

ASSUMPTIONS = steady(
    trials=Trials(0.0, 0.0),
    spread=Spread(0.0, 0.0),
    startup=StartUp(0.0, 0.0, 0.0, 0.0),
    storage=Storage(1e24, 1e24, 0.0),
)


def set_pace(script: Script, monkeypatch: Any) -> None:
    """A group of `Pretended` is as fast and as good as the script says."""
    tallies = script.tallies()
    monkeypatch.setattr(Pretended, "step_seconds", lambda *_: STEP_SECONDS)
    monkeypatch.setattr(Pretended, "validate_seconds", lambda *_: VALIDATE_SECONDS)
    monkeypatch.setattr(Pretended, "tally", lambda *_: next(tallies))


def setup(script: Script, directory: Path) -> Setup:
    return Setup(script.config, graph_to_json(SEED), str(directory))


def in_turn(driver: Driver[Any], clock: VirtualClock) -> Callable[[], Any]:
    """`next_work` of a driver whose script goes on when nothing is left to do, prepare or write."""
    real = driver.next_work

    def next_work() -> Any:
        while True:
            for beside in (driver._preparing, driver._writing):
                beside.submit(int).result()
            if not driver._works.empty():
                return real()
            clock.next()

    return next_work


def simulated(script: Script, directory: Path, monkeypatch: Any) -> str:
    set_pace(script, monkeypatch)
    said, machine = list[FromGroup](), SimulatedMachine(1, 1)
    around = surroundings(machine, ASSUMPTIONS, SEED, lambda _, message: said.append(message))
    group = SimulatedGroup(around, 0, machine.places, 1.0)
    group.hear(setup(script, directory))
    around.env.run()
    for at, message in script.messages:
        around.env.run(until=around.env.timeout(at - around.env.now))
        group.hear(message)
    around.env.run()
    return heard(script, said)


def pretended(script: Script, directory: Path, monkeypatch: Any) -> str:
    set_pace(script, monkeypatch)
    clock, said = VirtualClock(script), list[FromGroup]()
    worker = PretendingWorker(ALONE, ASSUMPTIONS, said.append)
    clock.deliver = worker.take
    monkeypatch.setattr(worker, "clock", clock)
    monkeypatch.setattr(worker.ended, "wait", clock.wait)
    monkeypatch.setattr(worker, "next_work", in_turn(worker, clock))
    worker.take(setup(script, directory))
    worker.serve()
    return heard(script, said)


# A worker that trains


IN_A_GROUP = (
    "32 steps, validated after 8, 9.4 s",
    "32 steps, validated after 2, stop at 5.2 s, patience 2",
    "the deadline is over",
    "a parent's weights are nowhere",
    "released in the middle",
)


class Heard:
    """A channel that only listens to the worker."""

    def __init__(self) -> None:
        self.said = list[FromGroup]()

    def send(self, message: FromGroup) -> None:
        self.said.append(message)

    def receive(self) -> ToGroup:
        raise EOFError


def timed(script: Script, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets time pass in each step and validation, and nowhere else."""
    tallies = script.tallies()

    def slow_build(rank: Rank, *others: Any) -> BuiltTrial:
        attempt = build(rank, *others)
        real = attempt.engine.step

        def step(*batch: torch.Tensor) -> torch.Tensor:
            clock.wait(STEP_SECONDS)
            return real(*batch)

        monkeypatch.setattr(attempt.engine, "step", step)
        return attempt

    def slow_evaluate(*others: Any) -> Any:
        evaluate(*others)
        clock.wait(VALIDATE_SECONDS)
        return next(tallies), VALIDATE_SECONDS

    monkeypatch.setattr(aiperf.training.worker, "build", slow_build)
    monkeypatch.setattr(aiperf.training.train, "evaluate", slow_evaluate)


def trained(
    script: Script, data: Data, directory: Path, place: Place, parallel: Parallel, monkeypatch: Any
) -> list[FromGroup]:
    """What the worker says."""
    clock, channel, device = VirtualClock(script), Heard(), bind("cpu", 0)
    timed(script, clock, monkeypatch)
    worker = Worker(setup(script, directory), channel, device, place, parallel)
    worker.rank = Rank(device, data, script.config.training, parallel, clock=clock)
    worker.seed_weights = initial(SEED, 1)
    monkeypatch.setattr(worker, "clock", clock)
    if place.leads:
        clock.deliver = worker.take
        monkeypatch.setattr(worker, "next_work", in_turn(worker, clock))
    else:  # its own clock decides nothing, so it may hear everything at once
        clock.deliver = lambda message: None
        for _, message in (*script.messages, (0.0, Quit())):
            worker._queue(message)
    worker.work()
    return channel.said


def trained_alone(script: Script, directory: Path, monkeypatch: Any) -> str:
    return heard(script, trained(script, synthetic(), directory, ALONE, Solo(), monkeypatch))


@cache
def synthetic() -> Data:
    return load(SCRIPTS[0].config.data, torch.device("cpu"), 1)


def in_a_group(directory: Path, place: Place, parallel: Parallel) -> dict[str, str]:
    """What the master hears of one rank of a group, by script."""
    found = {}
    for number, script in enumerate(each for each in SCRIPTS if each.name in IN_A_GROUP):
        with pytest.MonkeyPatch.context() as monkeypatch:
            folder = directory / str(number)
            folder.mkdir(exist_ok=True)
            said = trained(script, synthetic(), folder, place, parallel, monkeypatch)
            found[script.name] = heard(script, said)
    return found


def meeting_in(directory: Path) -> tuple[Callable[[Meeting], None], Callable[[], Join]]:
    """How the leader says where to meet, and how all hear it: by a file."""
    meeting = directory / "meeting.json"

    def say(own: Meeting) -> None:
        written = directory / "written"
        written.write_text(json.dumps([own.host, own.port, "secret"]))
        written.replace(meeting)

    def hear() -> Join:
        while not meeting.exists():
            time.sleep(0.01)
        return Join(*json.loads(meeting.read_text()))

    return say, hear
