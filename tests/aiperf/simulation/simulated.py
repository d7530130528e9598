"""Small simulations for tests: the real run on a simulated machine, without the command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import simpy

from aiperf.config import Config, load_preset, with_overrides
from aiperf.journal.file import read_journal
from aiperf.journal.replay import Replay, replay
from aiperf.journal.run_files import RunFiles
from aiperf.pretending.assumptions import Assumptions, Failures, assumed
from aiperf.pretending.group_model import Pretended
from aiperf.pretending.rank_report import pretended_manifest
from aiperf.run.checks import virtual_config
from aiperf.run.run import play
from aiperf.simulation.data_on_nodes import DataOnNodes
from aiperf.simulation.simulated_group import Surroundings
from aiperf.simulation.simulated_machine import SharedStorage, SimulatedFiles, SimulatedMachine
from aiperf.simulation.simulated_world import SimulatedWorld
from aiperf.wire.layout import Place
from aiperf.wire.messages import Setup
from aiperf.wire.reports import FromGroup
from nas.graph import Graph

NEVER = Failures(0.0, 0.0, 2.0)


def config(minutes: float = 30.0, **settings: object) -> Config:
    return with_overrides(load_preset("ranked"), {"limits.minutes": minutes, **settings})


def steady(**parts: object) -> Assumptions:
    """Where nothing fails unless it is said."""
    return replace(assumed("h100"), **{"failures": NEVER, **parts})  # type: ignore[arg-type]


def surroundings(
    machine: SimulatedMachine, assumptions: Assumptions, seed: Graph, say: Callable[[int, FromGroup], None]
) -> Surroundings:
    """What is around a group that is simulated by itself."""
    env = simpy.Environment()

    def pretended(setup: Setup, places: Sequence[Place], speed: float) -> Pretended:
        manifest = pretended_manifest(setup.config)
        return Pretended(assumptions, setup.config, seed, manifest, len(places), speed)

    storage, data = SharedStorage(env, assumptions.storage), DataOnNodes(assumptions.data)
    return Surroundings(env, assumptions, storage, data, pretended, say, machine.hosts, "code", 0.0)


class Played:
    """One simulated run in a directory of its own."""

    def __init__(
        self, directory: Path, machine: SimulatedMachine, assumptions: Assumptions, wanted: Config
    ) -> None:
        wanted = virtual_config(wanted, machine.devices_per_trial or machine.devices, assumptions.format)
        self.world = SimulatedWorld(machine, assumptions, wanted.random_seed, "code")
        self.said: list[str] = []
        files = SimulatedFiles(directory, self.world.storage)
        self.live: Replay = play(
            wanted, files, self.world, self.world.clock, self.said.append, 60.0, ("aiperf-hpc",)
        )
        self.files = RunFiles(directory)
        self.text = self.files.journal.read_text(encoding="utf-8")

    @property
    def replay(self) -> Replay:
        """As its journal tells it."""
        return replay(read_journal(self.files.journal))
