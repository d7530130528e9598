"""The drivers of the conduct on a virtual clock: what the master hears of a script from each of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import simpy

from aiperf.pretending.assumptions import Spread, StartUp, Storage, Trials
from aiperf.pretending.group_model import Pretended
from aiperf.pretending.rank_report import pretended_manifest
from aiperf.ranks.world import ALONE
from aiperf.simulation.data_on_nodes import DataOnNodes
from aiperf.simulation.simulated_group import SimulatedGroup, Surroundings
from aiperf.simulation.simulated_machine import SharedStorage, SimulatedMachine
from aiperf.training.driver import Driver
from aiperf.training.pretending_worker import PretendingWorker
from aiperf.wire.messages import Setup
from aiperf.wire.reports import FromGroup
from nas.record import graph_to_json
from tests.aiperf.conduct.courses import SEED, STEP_SECONDS, VALIDATE_SECONDS, Script, VirtualClock, heard
from tests.aiperf.simulation.simulated import steady


class Timed:
    """Makes a group of `Pretended` as fast and as good as a script says."""

    def __init__(self, script: Script, monkeypatch: Any) -> None:
        tallies = script.tallies()
        monkeypatch.setattr(Pretended, "step_seconds", lambda *_: STEP_SECONDS)
        monkeypatch.setattr(Pretended, "validate_seconds", lambda *_: VALIDATE_SECONDS)
        monkeypatch.setattr(Pretended, "tally", lambda *_: next(tallies))


def assumptions() -> Any:
    return steady(
        trials=Trials(0.0, 0.0),
        spread=Spread(0.0, 0.0),
        startup=StartUp(0.0, 0.0, 0.0, 0.0),
        storage=Storage(1e24, 1e24, 0.0),
    )


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
    Timed(script, monkeypatch)
    env, said, machine = simpy.Environment(), list[FromGroup](), SimulatedMachine(1, 1)
    around = Surroundings(
        env,
        assumptions(),
        SharedStorage(env, assumptions().storage),
        DataOnNodes(assumptions().data),
        lambda setup, places, speed: Pretended(
            assumptions(), setup.config, SEED, pretended_manifest(setup.config), len(places), speed
        ),
        lambda _, message: said.append(message),
        machine.hosts,
        "code",
        0.0,
    )
    group = SimulatedGroup(around, 0, machine.places, 1.0)
    group.hear(setup(script, directory))
    env.run()
    for at, message in script.messages:
        env.run(until=env.timeout(at - env.now))
        group.hear(message)
    env.run()
    return heard(script, said)


def pretended(script: Script, directory: Path, monkeypatch: Any) -> str:
    Timed(script, monkeypatch)
    clock, said = VirtualClock(script), list[FromGroup]()
    worker = PretendingWorker(ALONE, assumptions(), said.append)
    clock.deliver = worker.take
    monkeypatch.setattr(worker, "clock", clock)
    monkeypatch.setattr(worker.ended, "wait", clock.wait)
    monkeypatch.setattr(worker, "next_work", in_turn(worker, clock))
    worker.take(setup(script, directory))
    worker.serve()
    return heard(script, said)
