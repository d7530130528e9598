"""The drivers of the conduct on a virtual clock: what the master hears of a script from each of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiperf.pretending.assumptions import Spread, StartUp, Storage, Trials
from aiperf.pretending.group_model import Pretended
from aiperf.ranks.world import ALONE
from aiperf.simulation.simulated_group import SimulatedGroup
from aiperf.simulation.simulated_machine import SimulatedMachine
from aiperf.training.driver import Driver
from aiperf.training.pretending_worker import PretendingWorker
from aiperf.wire.messages import Setup
from aiperf.wire.reports import FromGroup
from nas.record import graph_to_json
from tests.aiperf.conduct.courses import SEED, STEP_SECONDS, VALIDATE_SECONDS, Script, VirtualClock, heard
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
