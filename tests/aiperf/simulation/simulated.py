"""Small simulations for tests: the real run on a simulated machine, without the command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from aiperf.config import Config, load_preset, with_overrides
from aiperf.journal.file import read_journal
from aiperf.journal.replay import Replay, replay
from aiperf.journal.run_files import RunFiles
from aiperf.pretending.assumptions import Assumptions, Failures, assumed
from aiperf.run.checks import virtual_config
from aiperf.run.run import play
from aiperf.simulation.simulated_machine import SimulatedFiles, SimulatedMachine
from aiperf.simulation.simulated_world import SimulatedWorld

NEVER = Failures(0.0, 0.0, 2.0)


def config(minutes: float = 30.0, **settings: object) -> Config:
    return with_overrides(load_preset("ranked"), {"limits.minutes": minutes, **settings})


def steady(**parts: object) -> Assumptions:
    """Where nothing fails unless it is said."""
    return replace(assumed("h100"), **{"failures": NEVER, **parts})  # type: ignore[arg-type]


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
