"""The machine that is simulated: how many nodes, who is where, how fast each is, and which fails when."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from aiperf.errors import ConfigError
from aiperf.pretending.assumptions import StartUp
from aiperf.wire.layout import Place, layout

MOST_RANKS = 1_000_000
"""A size that was typed wrongly must not take the memory."""


@dataclass(frozen=True)
class SimulatedMachine:
    """Equal nodes. The master is one process more on the first of them."""

    nodes: int
    devices: int
    """Devices of a node."""
    devices_per_trial: int = 0
    """0: all of a node."""

    def __post_init__(self) -> None:
        for name, value in (("nodes", self.nodes), ("devices", self.devices)):
            if value < 1:
                raise ConfigError(f"--{name} has {value}; give 1 or more")
        if self.num_ranks > MOST_RANKS:
            raise ConfigError(f"{self.nodes} nodes x {self.devices} devices are over {MOST_RANKS:,} ranks")

    @property
    def num_ranks(self) -> int:
        """Those that train."""
        return self.nodes * self.devices

    @property
    def hosts(self) -> tuple[str, ...]:
        """The host of every rank, the master's first."""
        digits = max(4, len(str(self.nodes)))
        names = [f"node{number:0{digits}}" for number in range(1, self.nodes + 1)]
        return (names[0], *(name for name in names for _ in range(self.devices)))

    @property
    def places(self) -> tuple[Place, ...]:
        """Raises WorldError where the devices of a trial do not fit the nodes."""
        return layout(self.hosts, self.devices_per_trial)

    @property
    def groups_a_node(self) -> int:
        """1 where a group spans nodes."""
        return max(1, self.devices // (self.devices_per_trial or self.devices))


def node_speed(random_seed: int, host: str, spread: float) -> float:
    """Times that of a usual node: lognormal, of median 1."""
    return math.exp(random.Random(f"{random_seed} speed of {host}").gauss(0.0, spread))


def seconds_to_failure(what: str, random_seed: int, mean_hours: float) -> float:
    """Exponentially distributed; infinite where it never fails (a mean of 0)."""
    if mean_hours <= 0:
        return math.inf
    return random.Random(f"{random_seed} failure of {what}").expovariate(1 / (3600 * mean_hours))


def start_seconds(startup: StartUp, ranks: int, rank: int) -> float:
    """Until the rank of that number is ready, of so many that start at once. They come evenly, one after the
    other."""
    growing = startup.seconds_a_rank * ranks + startup.seconds_a_rank_squared * ranks**2
    return startup.seconds + growing * rank / ranks
