"""One leg of a run by the real master, against groups that are threads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from aiperf.config import Config, with_overrides
from aiperf.files import RunFiles
from aiperf.journal.events import Opened
from aiperf.journal.file import VERSION, JournalWriter, read_journal
from aiperf.journal.replay import Replay, replay
from aiperf.proposing.jobs import Jobs
from aiperf.ranks.world import World
from aiperf.run.ledger import Ledger
from aiperf.run.master import Audience, Master
from aiperf.trial import State
from aiperf.wire.messages import Assign
from nas.record import graph_to_json
from nas.seeds import residual
from tests.aiperf.groups import FakeWorld
from tests.aiperf.presets import resolved_preset


class Run:
    """One leg of a run in a directory of its own."""

    def __init__(self, directory: Path, world: World, silence_seconds: float = 60.0, **limits: float) -> None:
        self.files, self.world, self.said = RunFiles(directory / "run"), world, list[str]()
        chosen = {"limits.minutes": 0.0, **{f"limits.{name}": value for name, value in limits.items()}}
        self.config: Config = with_overrides(resolved_preset("digits"), chosen)
        self.seed = residual()
        self.before: Callable[[Master], None] = lambda master: None
        self.silence_seconds = silence_seconds

    def go(self) -> Replay:
        """The run as its journal tells it."""
        with JournalWriter.begin(self.files) as journal:
            opened = Opened(VERSION, "run", "0", "code", self.config, graph_to_json(self.seed))
            told = Replay()
            journal.write(0.0, opened)
            told.add(0.0, opened)
            ledger = Ledger(journal, told, Jobs.of(self.config, self.seed, told))
            audience = Audience(watch=lambda run, t: None, say=self.said.append)
            master = Master(ledger, self.files, self.world, audience, self.silence_seconds)
            self.before(master)
            try:
                master.run("now", ("aiperf-hpc",))
            finally:
                self.world.close()
        found = replay(read_journal(self.files.journal))
        assert found.faults == []
        return found


def states(told: Replay) -> list[State]:
    return [told.trials[number].state for number in sorted(told.trials)]


def assigned(world: FakeWorld, group: int) -> list[int]:
    return [m.trial.number for m in world.workers[group].heard if isinstance(m, Assign)]


def reasons(told: Replay) -> list[str]:
    return [loss.reason for loss in told.leg.losses]
