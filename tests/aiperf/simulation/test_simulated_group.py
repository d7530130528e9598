"""One simulated group on its clock, against times that are computed by hand."""

from __future__ import annotations

from typing import TypeVar

import pytest

from aiperf.pretending.assumptions import Speed, Spread, StartUp, Storage, Trials
from aiperf.pretending.group_model import Learnt, Pretended
from aiperf.simulation.simulated_group import SimulatedGroup
from aiperf.simulation.simulated_machine import SimulatedMachine
from aiperf.wire.messages import Assign, Steps, Validated, Working
from aiperf.wire.reports import Finished, FromGroup, Ready, Started
from aiperf.wire.trial import HyperParameters, Trial
from nas.seeds import residual
from tests.aiperf.simulation.simulated import steady, surroundings
from tests.aiperf.simulation.test_simulated_world import setup

M = TypeVar("M", bound=FromGroup)
AT_ONCE = Speed(1e18)
"""A speed at which steps and validations take no time."""


class Alone:
    """The last group of a machine: it is ready after 10 s and 2 s for each rank that starts, prepares a trial
    for 4 s, begins it after 1 s more, and opens a file in 0.5 s."""

    def __init__(self, nodes: int = 1, speed: Speed = AT_ONCE) -> None:
        self.assumptions = steady(
            speed=speed,
            trials=Trials(1.0, 4.0),
            spread=Spread(0.0, 0.0),
            startup=StartUp(10.0, 2.0, 0.0, 8.0),
            storage=Storage(1e15, 1e15, 0.5),
        )
        self.said: list[tuple[float, FromGroup]] = []
        machine = SimulatedMachine(nodes, 1)
        around = surroundings(machine, self.assumptions, residual(), self._say)
        self.env, self.storage = around.env, around.storage
        self.group = SimulatedGroup(around, nodes - 1, machine.places[-1:], 1.0)

    def _say(self, _: int, message: FromGroup) -> None:
        self.said.append((self.env.now, message))

    def ready(self) -> Alone:
        self.group.hear(setup())
        self.env.run()
        return self

    def assign(self, number: int, parent: int | None) -> None:
        trial = Trial(number, parent, (), HyperParameters(0.1, 50), 1, 1, 1)
        self.group.hear(Assign(trial, 1))

    def trained(self, number: int, parent: int | None = None) -> Alone:
        self.assign(number, parent)
        self.env.run()
        return self

    def of(self, kind: type[M]) -> list[tuple[float, M]]:
        return [(t, message) for t, message in self.said if isinstance(message, kind)]


def test_all_ranks_start_at_first_and_then_those_of_the_group() -> None:
    alone = Alone(nodes=3).ready()
    ((t, ready),) = alone.of(Ready)
    assert (t, ready.rank, ready.seconds) == (16.0, 3, 16.0)
    alone.group.start()
    alone.ready()
    t, ready = alone.of(Ready)[1]
    assert (t - 16.0, ready.rank, ready.seconds) == (12.0, 3, 12.0)


def test_trials_are_prepared_one_after_the_other() -> None:
    alone = Alone().ready()
    began = alone.env.now
    alone.assign(0, None)
    alone.assign(1, None)
    alone.env.run()
    told = [(t - began, started.trial, started.prepare_seconds) for t, started in alone.of(Started)]
    assert told == [(5.0, 0, 5.0), (9.0, 1, 9.0)]


def test_the_parent_that_was_trained_here_last_is_not_read() -> None:
    alone = Alone().ready()
    alone.trained(0, None)
    alone.trained(1, 0)
    assert alone.storage.bytes_read == 0
    alone.trained(2, 0)  # trial 1 was the last
    once = alone.storage.bytes_read
    assert once > 0
    alone.group.start()
    alone.ready()
    alone.trained(3, 2)  # the processes that had it in memory are gone
    assert alone.storage.bytes_read == 2 * once


def test_an_outcome_is_as_old_as_its_weights_took_to_be_written() -> None:
    alone = Alone().ready().trained(0)
    ((validated, _),) = alone.of(Validated)[-1:]
    ((t, finished),) = alone.of(Finished)
    assert t - validated == finished.age_seconds == pytest.approx(0.5, abs=1e-3)


def test_in_a_long_validation_it_says_that_it_works() -> None:
    examples = setup().config.data.validation_examples
    once = Pretended(steady(speed=Speed(1e12)), setup().config, residual(), {})
    speed = Speed(1e12, validation=once.validate_seconds(Learnt(residual()), examples) / 12.0)
    alone = Alone(speed=speed).ready().trained(0)
    (trained, _), *_ = reversed([each for each in alone.of(Steps) if each[0] < alone.of(Validated)[0][0]])
    assert [t - trained for t, _ in alone.of(Working)[:2]] == pytest.approx([5.0, 10.0])
    assert alone.of(Validated)[0][0] - trained == pytest.approx(12.0)
