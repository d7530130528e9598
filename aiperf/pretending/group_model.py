"""A group that only pretends to train: how long its work takes and what it learns, by a machine model."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from statistics import NormalDist

from aiperf.conduct.actions import Keep, Train, Validate
from aiperf.conduct.events import BlockDone, Built, ValidationDone
from aiperf.config import EAGER, Config
from aiperf.pretending.assumptions import Assumptions, NodeNetwork, Spread
from aiperf.proposing.plan import plan, validated_at_once
from aiperf.tasks.registry import task_of
from aiperf.tasks.tally import Tally
from aiperf.tasks.task import Manifest
from aiperf.wire.layout import Place
from aiperf.wire.trial import Trial
from nas.frozen import frozen
from nas.graph import Graph
from nas.ops import TENSOR_OPS

ELEMENT_BYTES = 4
"""Size of a weight, and of its gradient."""
GRID = [index / 20 for index in range(-180, 181)]
"""Where the normal density is summed: beyond 9 deviations it is 0, and the sum over smooth functions has no
error that a float would show."""


@cache
def slowest(devices: int, spread: float) -> float:
    """The mean of the longest of so many times, in that of one of them. The times are lognormal, and `spread`
    is the standard deviation of their logarithms."""
    if devices == 1 or not spread:
        return 1.0
    # E max exp(spread z) / E exp(spread z), with the square in the exponent of the density completed.
    normal, step = NormalDist(), GRID[1] - GRID[0]
    return devices * step * math.fsum(normal.pdf(z) * normal.cdf(z + spread) ** (devices - 1) for z in GRID)


def device_speed(random_seed: int, device: str, spread: float) -> float:
    """Speed of a device relative to the others of its node: lognormal with median 1. It follows from the seed
    and from what names the device."""
    if not spread:
        return 1.0
    return math.exp(random.Random(f"{random_seed} speed of device {device}").gauss(0.0, spread))


@frozen
class Learnt:
    """An architecture, and how much it and its ancestors were trained."""

    graph: Graph
    examples: int = 0
    """Examples that it and its ancestors were trained on."""
    rate_offset: float = 0.0
    """Logarithm of its rate ÷ that of a usual network of as many operations and layers."""

    def child(self, trial: Trial, spread: Spread) -> Learnt:
        """What a trial starts from. Raises what its morphisms raise."""
        graph, offset = self.graph, self.rate_offset
        for morphism in trial.morphisms:
            graph = morphism.apply(graph)
            own = random.Random(f"rate of {graph.key}").gauss(0.0, spread.network)
            offset = spread.lineage * offset + own
        return replace(self, graph=graph, rate_offset=offset)


@frozen
class GroupExtent:
    """Where the ranks of a group are, as far as its all-reduce depends on it."""

    nodes: int = 1
    node_share: float = 1.0
    """Share of a node's ranks, and so of what it can send."""
    switches: int = 1

    @classmethod
    def of(cls, places: Sequence[Place], fabric: NodeNetwork) -> GroupExtent:
        """The extent of a group with these places."""
        nodes = {place.host_index for place in places}
        switches = {node // fabric.nodes_a_switch for node in nodes} if fabric.nodes_a_switch else {0}
        share = len(places) / len(nodes) / places[0].ranks_on_host
        return cls(len(nodes), share, len(switches))


@frozen
class Pretended:
    """A group of ranks that pretends to train, with its configuration and its data."""

    assumptions: Assumptions
    config: Config
    seed: Graph
    manifest: Manifest
    """The manifest of the data, as its ranks would have read it."""
    ranks: int = 1
    """Number of ranks that share each step."""
    speed: float = 1.0
    """The speed of this group, which is that of its slowest device, in that of a usual one."""
    extent: GroupExtent = GroupExtent()
    ready: float = 0.0
    """When its devices began to work, in seconds of its driver's clock."""
    engine: str = EAGER
    """The engine that its trials report."""

    @property
    def untrained(self) -> Learnt:
        """The seed before its first step, which a trial without a parent starts from."""
        return Learnt(self.seed)

    def begun(self, trial: Trial, attempt: int, start: Learnt) -> PretendedTrial:
        """A trial of this group. `start` is the child's own architecture, with what its ancestors have
        learnt."""
        return PretendedTrial(self, trial, attempt, start)

    def step_seconds(self, learnt: Learnt, batch_size: int) -> float:
        """The length of a training step, all-reduce included."""
        speed, graph = self.assumptions.speed, learnt.graph
        operations = graph.cost.train.price(TENSOR_OPS) * batch_size / self.ranks
        usual = (
            speed.step_seconds + speed.layer_seconds * len(graph.nodes) + operations / speed.ops_per_second
        )
        computing = usual * math.exp(-learnt.rate_offset)
        if self.ranks == 1:
            return computing / self.speed
        computing *= slowest(self.ranks, self.assumptions.spread.step)
        # As everything else that a group does, its all-reduce is slower on a slow node.
        reducing = self.all_reduce_seconds(ELEMENT_BYTES * graph.num_parameters)
        hidden = self.assumptions.group.overlap * computing
        return (computing + max(0.0, reducing - hidden)) / self.speed

    def all_reduce_seconds(self, content: int) -> float:
        """The time in which the ranks sum this many bytes. They are a ring, whose slowest link decides."""
        group, fabric, extent = self.assumptions.group, self.assumptions.fabric, self.extent
        rate, latency = group.all_reduce_bytes_per_second, group.all_reduce_seconds
        if extent.nodes > 1:
            through = fabric.node_bytes_per_second * extent.node_share
            rate = min(rate, through / fabric.oversubscription if extent.switches > 1 else through)
            latency += 2 * extent.nodes * fabric.hop_seconds
        return latency + 2 * (self.ranks - 1) / self.ranks * content / rate

    def validate_seconds(self, learnt: Learnt, examples: int) -> float:
        """The length of an evaluation of this many examples."""
        speed, graph = self.assumptions.speed, learnt.graph
        batches = math.ceil(examples / validated_at_once(graph, self.ranks))
        operations = graph.cost.evaluate.price(TENSOR_OPS) * examples / self.ranks
        computing = operations / speed.ops_per_second
        starting = batches * speed.layer_seconds * len(graph.nodes) / 3  # a step goes forward and back
        return (computing + starting) * math.exp(-learnt.rate_offset) / speed.validation / self.speed

    def longer(self, now: float) -> float:
        """By how much longer work takes that begins now: its devices have become hot."""
        heat, since = self.assumptions.heat, max(0.0, now - self.ready)
        return 1 / (1 - heat.slowdown * (1 - math.exp(-since / heat.seconds)))

    def error(self, learnt: Learnt) -> float:
        """The error on new examples."""
        task = task_of(self.config.data)
        errors = self.assumptions.errors.of(task.error_law)
        relative = learnt.graph.operations / self.seed.operations
        draw = random.Random(f"error of {learnt.graph.key}").gauss(0.0, 1.0)
        floor = min(0.99, errors.floor * relative**-errors.size_power * math.exp(errors.spread * draw))
        start = max(floor, task.chance(self.config.data.classes))
        left = (1 + learnt.examples / errors.examples) ** -errors.power
        return float(floor + (start - floor) * left)

    def tally(self, learnt: Learnt, examples: int) -> Tally:
        """The result of this many new examples."""
        data = self.config.data
        return task_of(data).tally(examples, data.size, self.error(learnt))

    def tested(self, learnt: Learnt) -> Tally:
        """The result on the test part."""
        return self.tally(learnt, self.manifest["test_examples"])


class PretendedTrial:
    """A trial that nobody trains: how long each work of it takes, and what comes of it.

    Its driver waits in between, in real time or on a virtual clock.
    """

    def __init__(self, group: Pretended, trial: Trial, attempt: int, start: Learnt) -> None:
        self.number = trial.number, attempt
        self._group, self._start, self._learnt = group, start, start
        training, examples = group.config.training, group.manifest["training_examples"]
        self.batch_size = trial.hyper.batch_size
        self._step_seconds = group.step_seconds(start, self.batch_size)
        self.built = Built(start.graph, plan(trial, training, examples), self._step_seconds)
        self._draws = random.Random(f"course of {trial.number} {attempt} {group.config.random_seed}")
        self._is_first = True
        self._examples = 0
        """Examples since the last validation."""
        self._loss = group.error(start)
        self.kept: Learnt | None = None

    def train_seconds(self, steps: int, now: float) -> float:
        """The length of a block of this many steps that begins now; each call draws it anew."""
        assumptions = self._group.assumptions
        seconds = steps * self._step_seconds * math.exp(self._draws.gauss(0.0, assumptions.spread.block))
        seconds *= self._group.longer(now)
        if self._is_first:
            seconds += assumptions.trials.first_step_seconds / self._group.speed
        self._is_first = False
        return seconds

    def trained(self, work: Train, seconds: float, ended: float) -> BlockDone:
        """The end of that block."""
        examples = work.steps * self.batch_size
        self._examples += examples
        return BlockDone(work.steps, examples, seconds, self._loss, ended)

    def validate_seconds(self, now: float) -> float:
        """The length of a validation that begins now."""
        group = self._group
        examples = group.manifest["validation_examples"]
        return group.validate_seconds(self._start, examples) * group.longer(now)

    def validated(self, work: Validate, seconds: float, ended: float) -> ValidationDone:
        """The end of a validation: what was trained since the last one shows."""
        group, learnt = self._group, self._learnt
        self._learnt = learnt = replace(learnt, examples=learnt.examples + self._examples)
        self._examples, self._loss = 0, group.error(learnt)
        tally = group.tally(learnt, group.manifest["validation_examples"])
        return ValidationDone(tally, seconds, ended)

    def keep(self, work: Keep) -> None:
        self.kept = self._learnt
