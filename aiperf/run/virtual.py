"""A run whose groups and clock are given: the real master, journal and search in a simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone

from aiperf.clock import Clock
from aiperf.config import Config, with_overrides
from aiperf.files import RunFiles
from aiperf.journal.events import Origin
from aiperf.journal.replay import Replay
from aiperf.proposing.proposals import new_search, new_tuner, resolved
from aiperf.ranks.world import World
from aiperf.run.ledger import Ledger
from aiperf.run.master import Audience, Master
from aiperf.run.run import new_journal, starting_graph
from aiperf.wire.formats import AUTO
from aiperf.wire.layout import refuse_uneven_batch


def virtual_config(config: Config, ranks_of_a_group: int, format: str) -> Config:
    """As it can be run where nothing is trained; never to be ranked. `format` is what "auto" comes to.
    Raises AiperfError for what cannot."""
    config, _ = resolved(replace(config, ranked=False))
    if config.training.format == AUTO:
        config = with_overrides(config, {"training.format": format})
    refuse_uneven_batch(config.training.batch_size, ranks_of_a_group)
    seed = starting_graph(config)
    new_search(config, seed), new_tuner(config)
    return config


def play(
    config: Config,
    files: RunFiles,
    world: World,
    clock: Clock,
    say: Callable[[str], None],
    silence_seconds: float,
    command: tuple[str, ...],
) -> Replay:
    """From the first line to the last. Raises AiperfError; what was written stays."""
    seed, replay = starting_graph(config), Replay()
    with new_journal(config, files, seed, Origin.SIMULATED, replay) as (journal, jobs):
        ledger = Ledger(journal, replay, jobs, clock)
        master = Master(ledger, files, world, Audience(_unwatched, say), silence_seconds)
        started = datetime.fromtimestamp(clock.wall(), timezone.utc).isoformat(timespec="milliseconds")
        try:
            master.run(started, command)
        finally:
            world.close()
    return replay


def _unwatched(replay: Replay, now: float) -> None:
    """Nobody looks on: an hour passes in seconds."""
