"""The machine that is simulated: its nodes, how fast each is and which fails when, and its file system, which
holds the run directory."""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Container, Generator

import simpy

from aiperf.config import TrainingConfig
from aiperf.errors import ConfigError
from aiperf.journal.run_files import RunFiles
from aiperf.pretending.assumptions import StartUp, Storage
from aiperf.pretending.group_model import ELEMENT_BYTES, Learnt
from aiperf.wire.layout import Place, layout
from nas.frozen import frozen

MOST_RANKS = 1_000_000
"""Maximum number of ranks, so that a mistyped size does not exhaust the memory."""


@frozen
class SimulatedMachine:
    """Equal nodes. The master is an additional process on the first one."""

    nodes: int
    devices: int
    """Number of devices per node."""
    devices_per_trial: int = 0
    """Number of devices per trial; 0: as many as a node has."""
    spread: bool = False
    """Whether the devices of a trial lie on as many nodes as possible."""

    def __post_init__(self) -> None:
        """Raises ConfigError for a machine without nodes or devices, or with more than MOST_RANKS."""
        for name, value in (("nodes", self.nodes), ("devices", self.devices)):
            if value < 1:
                raise ConfigError(f"--{name} has {value}; give 1 or more")
        if self.num_ranks > MOST_RANKS:
            raise ConfigError(f"{self.nodes} nodes x {self.devices} devices are over {MOST_RANKS:,} ranks")

    @property
    def num_ranks(self) -> int:
        """Number of ranks that train."""
        return self.nodes * self.devices

    @property
    def hosts(self) -> tuple[str, ...]:
        """Host of every rank, the master's first."""
        digits = max(4, len(str(self.nodes)))
        names = [f"node{number:0{digits}}" for number in range(1, self.nodes + 1)]
        return (names[0], *(name for name in names for _ in range(self.devices)))

    @property
    def places(self) -> tuple[Place, ...]:
        """Places of the ranks that train. Raises WorldError if the devices of a trial do not fit the
        nodes."""
        return layout(self.hosts, self.devices_per_trial, self.spread)

    @property
    def groups_a_node(self) -> int:
        """Number of groups that have devices on one node."""
        return len({place.group for place in self.places if place.host_index == 0})


def node_speed(random_seed: int, host: str, spread: float) -> float:
    """Speed of a node relative to a usual one: lognormal with median 1. It follows from the seed and the
    name, so it does not depend on the number of nodes. `spread` is the standard deviation of its
    logarithm."""
    return math.exp(random.Random(f"{random_seed} speed of {host}").gauss(0.0, spread))


def seconds_to_failure(what: str, random_seed: int, mean_hours: float) -> float:
    """Time to a failure in seconds, exponentially distributed; infinite if the mean is 0, which means never.
    `what` names the part, so that each has a draw of its own."""
    if mean_hours <= 0:
        return math.inf
    return random.Random(f"{random_seed} failure of {what}").expovariate(1 / (3600 * mean_hours))


def start_seconds(startup: StartUp, ranks: int, rank: int) -> float:
    """Time in seconds until rank number `rank` is ready, if `ranks` start at once. They become ready one
    after the other, at equal intervals."""
    growing = startup.seconds_a_rank * ranks + startup.seconds_a_rank_squared * ranks**2
    return startup.seconds + growing * rank / ranks


class SharedStorage:
    """Processor sharing: of n transfers each has min(client bandwidth, total bandwidth / n).

    All have the same rate at any moment. So one running sum of what each has been served is enough, and a
    transfer ends when the sum has grown by its size: O(log n) for each, however many there are.
    """

    def __init__(self, env: simpy.Environment, assumed: Storage, clients_a_node: int = 1) -> None:
        """`clients_a_node`: number of groups that share the bandwidth of their node. `assumed` has the
        bandwidths in bytes per second, of one node and of all together."""
        self._env, self._assumed = env, assumed
        self._client = assumed.client_bytes_per_second / clients_a_node
        self._ends: list[tuple[float, int, simpy.Event]] = []
        self._numbers = itertools.count()
        self._served = self._since = 0.0
        self._plan = 0
        self.kept: dict[int, Learnt] = {}
        """The network that the kept weights of a trial stand for, by its number."""
        self.bytes_written = self.bytes_read = 0

    def write(
        self, trial: int, learnt: Learnt, training: TrainingConfig
    ) -> Generator[simpy.Event, object, None]:
        """Keeps the weights of a trial, once their bytes have been written."""
        content = kept_bytes(learnt.graph.num_parameters, training)
        self.bytes_written += content
        yield self._env.timeout(self._assumed.open_seconds)
        yield self.transfer(content)
        self.kept[trial] = learnt

    def read(self, trial: int, training: TrainingConfig) -> Generator[simpy.Event, object, Learnt | None]:
        """Reads the weights of a trial; None if none are kept. The ranks of a node read them once, because
        the node caches the pages."""
        learnt = self.kept.get(trial)
        yield self._env.timeout(self._assumed.open_seconds)
        if learnt is not None:
            content = kept_bytes(learnt.graph.num_parameters, training)
            self.bytes_read += content
            yield self.transfer(content)
        return learnt

    def transfer(self, content: float) -> simpy.Event:
        """An event that happens when `content` bytes have been transferred."""
        self._serve()
        done = self._env.event()
        heapq.heappush(self._ends, (self._served + content, next(self._numbers), done))
        self._await_next()
        return done

    def _rate(self) -> float:
        """Bandwidth of each transfer, in bytes per second."""
        return min(self._client, self._assumed.bytes_per_second / len(self._ends))

    def _serve(self) -> None:
        """Advances the sum of bytes that each transfer has been served to the present."""
        if self._ends:
            self._served += self._rate() * (self._env.now - self._since)
        self._since = self._env.now

    def _await_next(self) -> None:
        """Plans the end of the transfer that ends first. Each new plan outdates the earlier ones, because the
        rate has changed."""
        self._plan += 1
        if self._ends:
            seconds = max(0.0, self._ends[0][0] - self._served) / self._rate()
            event = self._env.timeout(seconds, self._plan)
            assert event.callbacks is not None
            event.callbacks.append(self._end)

    def _end(self, event: simpy.Event) -> None:
        """Ends all transfers that are due, and plans the next end; a plan that is outdated does nothing."""
        if event.value != self._plan:  # another transfer began or ended meanwhile
            return
        # Set, not added up: rounding could leave the transfer a fraction of a byte before its end forever.
        self._since, self._served = self._env.now, self._ends[0][0]
        while self._ends and self._ends[0][0] <= self._served:
            heapq.heappop(self._ends)[2].succeed()
        self._await_next()


@frozen
class SimulatedFiles(RunFiles):
    """A run directory whose journal is a real file and whose weights are only in the model."""

    storage: SharedStorage

    def drop_weights_but(self, needed: Container[int]) -> None:
        """Forgets the weights of all trials but these, as the real files are removed."""
        for trial in [trial for trial in self.storage.kept if trial not in needed]:
            del self.storage.kept[trial]


def kept_bytes(parameters: int, training: TrainingConfig) -> int:
    """Maximum size in bytes of a trial's kept weights, with the optimizer's numbers for each."""
    return training.numbers_a_weight * ELEMENT_BYTES * parameters
