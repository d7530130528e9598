"""The master's queue and clock, groups, failures and shared files, against cases computed by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import pytest
import simpy

from aiperf.config import load_preset
from aiperf.errors import ConfigError, WorldError
from aiperf.pretending.assumptions import Messages, Speed, Spread, StartUp, Storage, TrainingData, Trials
from aiperf.pretending.group_model import Learnt, Pretended, device_speed
from aiperf.ranks.world import Gone
from aiperf.simulation.data_on_nodes import DataOnNodes
from aiperf.simulation.simulated_group import SimulatedGroup
from aiperf.simulation.simulated_machine import (
    SharedStorage,
    SimulatedMachine,
    node_speed,
    seconds_to_failure,
)
from aiperf.simulation.simulated_world import MasterClock, SimulatedWorld
from aiperf.wire.layout import layout
from aiperf.wire.messages import Assign, MeasureCeiling, Release, Setup, Steps, Validated, Working
from aiperf.wire.reports import Ceiling, Finished, FromGroup, Ready, Started
from aiperf.wire.trial import HyperParameters, Trial
from nas.record import graph_to_json
from nas.seeds import residual
from tests.aiperf.simulation.simulated import steady, surroundings
from tests.tables import ComesTo


def world(nodes: int, **parts: object) -> SimulatedWorld:
    """Whose ranks are ready after 10 s, and whose messages need 1 s each way and 2 s of the master."""
    timed = {"messages": Messages(1.0, 2.0, 0.5), "startup": StartUp(10.0, 0.0, 0.0, 8.0), **parts}
    return SimulatedWorld(SimulatedMachine(nodes, 1), steady(**timed), 1, "code")


def heard(world: SimulatedWorld, num: int) -> list[tuple[float, int, FromGroup | Gone]]:
    found = []
    while len(found) < num:
        if received := world.receive(1.0):
            found.append((world.clock.now, *received))
    return found


def setup() -> Setup:
    config = replace(load_preset("digits"), ranked=False)
    return Setup(config, graph_to_json(residual()), "nowhere")


def test_messages_of_one_moment_wait_for_those_before() -> None:
    found = world(3)
    found.send_all(setup())
    # To the group 1 s, start-up 10 s, back 1 s; then the master needs 2 s for each.
    ready = [(t, group, type(message)) for t, group, message in heard(found, 3)]
    assert ready == [(14.0, 0, Ready), (16.0, 1, Ready), (18.0, 2, Ready)]
    found.send_all(Release(None))  # from here on it is counted
    found.send_all(MeasureCeiling(1.0))
    assert all(isinstance(message, Ceiling) for _, _, message in heard(found, 3))
    # Sent at 18, there at 19, measured by 23 (half of 8 s), back at 24: taken at 24, 26 and 28.
    assert list(found.clock.total.waited) == pytest.approx([0.0, 2.0, 4.0])
    assert (found.clock.total.requests, found.clock.total.busy_seconds) == (3, pytest.approx(6.0))
    assert found.clock.now == pytest.approx(30.0)


def test_of_messages_of_one_moment_that_of_the_lowest_group_is_first() -> None:
    found = world(3)
    for group in (2, 0, 1):
        found.send(group, setup())
    assert [group for _, group, _ in heard(found, 3)] == [0, 1, 2]


def test_an_earlier_start_is_not_heard_and_a_dead_node_does_not_start() -> None:
    found = world(2)
    found.send_all(setup())
    assert found.receive(1.0) is None
    assert found.restart(0)
    assert heard(found, 1)[0][:2] == (14.0, 1), "group 0 began again, and waits to be set up"
    found.send(0, setup())
    assert [(group, type(message)) for _, group, message in heard(found, 1)] == [(0, Ready)]


def test_a_node_fails_once_and_for_all() -> None:
    found = world(1, failures=replace(steady().failures, node_hours=1e-3, noticed_seconds=3.0))
    at = pytest.approx(seconds_to_failure("node0001", 1, 1e-3) + 3.0 + 2.0)
    assert heard(found, 1) == [(at, 0, Gone("node0001 failed"))]
    assert not found.restart(0)


def test_speeds_and_failures_follow_from_the_seed_and_the_name() -> None:
    assert node_speed(1, "node0001", 0.0) == 1.0
    assert node_speed(1, "node0001", 0.1) == node_speed(1, "node0001", 0.1) != node_speed(1, "node0002", 0.1)
    assert seconds_to_failure("node0001", 1, 0.0) == float("inf")
    drawn = [seconds_to_failure(f"node{index}", 1, 2.0) for index in range(2000)]
    assert sum(drawn) / len(drawn) == pytest.approx(7200, rel=0.05)


def test_a_machine_that_cannot_be_is_refused() -> None:
    for nodes, text in ((0, "--nodes"), (1_000_000, "1,000,000 ranks")):
        with pytest.raises(ConfigError, match=text):
            SimulatedMachine(nodes, 8)
    with pytest.raises(WorldError, match="--devices-per-trial 3"):
        _ = SimulatedMachine(4, 8, 3).places


def until(found: SimulatedWorld, t: float) -> list[tuple[int, FromGroup | Gone]]:
    """What is heard by then."""
    heard = []
    while found.clock.now < t:
        if received := found.receive(min(0.25, t - found.clock.now)):
            heard.append(received)
    return heard


@pytest.mark.parametrize("restarted", [0.5, 11.5], ids=["on the way there", "on the way back"])
def test_what_is_on_its_way_when_a_group_is_started_again_arrives_nowhere(restarted: float) -> None:
    found = world(1)
    found.send_all(setup())
    assert until(found, restarted) == []
    assert found.restart(0)
    assert until(found, 60.0) == []


def test_a_crash_is_of_the_start_that_it_was_drawn_for() -> None:
    often = replace(steady().failures, process_hours=1e-2, noticed_seconds=0.0)
    found = world(1, failures=often)
    first, second = (seconds_to_failure(f"group 0, start {start}", 1, 1e-2) for start in (1, 2))
    assert until(found, first / 2) == []
    assert found.restart(0)
    at = found.clock.now + second
    ((t, _, gone),) = heard(found, 1)
    assert t == pytest.approx(at + 2.0)
    assert isinstance(gone, Gone)
    assert "crashed" in gone.reason
    assert found.restart(0)
    assert isinstance(heard(found, 1)[0][2], Gone), "the next start crashes, too"


def test_a_dead_group_says_nothing_more_and_is_lost_once() -> None:
    """It spans two nodes, which both fail while it starts, and a process of it would have crashed."""
    often = replace(steady().failures, node_hours=1e-3, process_hours=1e-2, noticed_seconds=0.0)
    timed = {"messages": Messages(0.0, 0.0, 0.0), "startup": StartUp(60.0, 0.0, 0.0, 8.0)}
    found = SimulatedWorld(SimulatedMachine(2, 1, 2), steady(failures=often, **timed), 1, "code")
    found.send_all(setup())
    assert len(until(found, 600.0)) == 1


@pytest.mark.parametrize("of_devices", [0.0, 0.1])
def test_a_group_is_as_fast_as_the_slowest_device_of_its_nodes(of_devices: float) -> None:
    spread = replace(steady().spread, node=0.1, device=of_devices)
    found = SimulatedWorld(SimulatedMachine(2, 2, 4), steady(spread=spread), 1, "code")
    hosts = [(host, index) for host in ("node0001", "node0002") for index in (0, 1)]
    speeds = [node_speed(1, h, 0.1) * device_speed(1, f"{h}:{index}", of_devices) for h, index in hosts]
    assert len(set(speeds)) == (4 if of_devices else 2)
    assert found._each[0].speed == min(speeds)


# The master's turns

ASSUMED = Messages(seconds=1.0, master_seconds=2.0, proposal_seconds=0.5)


def test_a_candidate_is_of_the_turn_that_it_was_made_in() -> None:
    clock = MasterClock(ASSUMED, measures=True)
    clock.begin_span(None)
    clock.end_turn()
    clock.hear(0.0)
    clock.propose()
    for _ in range(3):
        clock.end_turn()
        clock.hear(0.0)
    total = clock.total
    assert (total.proposed, total.proposing_heard, total.heard, total.requests) == (1, 1, 2, 4)


def test_work_is_counted_between_the_release_and_the_deadline() -> None:
    clock = MasterClock(ASSUMED, measures=False)
    clock.hear(10.0)  # before the release
    clock.begin_span(100.0)  # at 12
    clock.begin_span(1.0)  # a group that was started again has less left; the span stays
    clock.hear(20.0)
    clock.propose()
    clock.hear(21.0)  # waits until 22.5
    assert clock.now == 24.5
    clock.hear(200.0)  # after the deadline, at 112
    assert (clock.total.requests, list(clock.total.waited)) == (2, [0.0, 1.5])
    assert clock.total.busy_seconds == pytest.approx(4.5)
    assert clock.now == 202.0


# The file system


def ends(storage: Storage, transfers: list[tuple[float, float]], clients_a_node: int = 1) -> list[float]:
    """When each (start, bytes) is over."""
    env = simpy.Environment()
    shared, found = SharedStorage(env, storage, clients_a_node), [0.0] * len(transfers)

    def client(index: int, start: float, content: float) -> simpy.events.ProcessGenerator:
        yield env.timeout(start)
        yield shared.transfer(content)
        found[index] = env.now

    for index, (start, content) in enumerate(transfers):
        env.process(client(index, start, content))
    env.run()
    return found


def test_a_transfer_alone_has_the_bandwidth_of_its_node() -> None:
    assert ends(Storage(100.0, 20.0, 0.0), [(1.0, 60.0)]) == pytest.approx([4.0])
    assert ends(Storage(100.0, 20.0, 0.0), [(1.0, 60.0)], clients_a_node=2) == pytest.approx([7.0])


def test_transfers_share_evenly_whenever_they_begin() -> None:
    # Alone for 1 s at 100; then both at 50: the second has 100 at 3 s, the first still 100 of its 300 then.
    assert ends(Storage(100.0, 100.0, 0.0), [(0.0, 300.0), (1.0, 100.0)]) == pytest.approx([4.0, 3.0])
    # Four at once, of which the file system is the limit: 40 bytes each at 10 bytes per second.
    assert ends(Storage(40.0, 20.0, 0.0), [(0.0, 40.0)] * 4) == pytest.approx([4.0] * 4)


# One simulated group on its clock


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


# What nodes read of the training images


IMAGES, BYTES = 1000, 10.0
SET = IMAGES * BYTES
Next = int | tuple[int, int]
BEGIN = 0
"""In the place of a number of images: the group begins a trial."""


def shares(
    hosts: str, size: int, *images: Next, memory: float = 1e9, spread: bool = False, **data: str
) -> list[list[float]]:
    """What the nodes of a group of these hosts read of the set for its next images, several times; a pair
    names another group first."""
    places, nodes = layout(hosts, size, spread), DataOnNodes(TrainingData(BYTES, memory))
    own = replace(load_preset("ranked").data, **data)
    groups = sorted({place.group for place in places})
    readings = [nodes.reading([p for p in places if p.group == group], own, IMAGES) for group in groups]
    found = []
    for each in images:
        group, num = each if isinstance(each, tuple) else (0, each)
        if num == BEGIN:
            readings[group].begin()
        else:
            found.append([round(read / SET, 9) for read in readings[group].next(num)])
    return found


def test_each_node_reads_its_share_once_while_it_has_memory(comes_to_what_was_read: ComesTo) -> None:
    """Each trial begins with a new order, of which a part was read before; a node of a spread group has
    another share in each epoch. What is not read from files costs nothing."""
    comes_to_what_was_read("data_on_nodes.txt", globals())
