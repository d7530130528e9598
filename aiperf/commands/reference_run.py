"""`run --like`: the configuration of another run, and the remaining differences from it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from aiperf import __version__
from aiperf.commands.user_files import opened
from aiperf.config import AUTO_STEP, Config, leaves, with_overrides
from aiperf.errors import AiperfError, ConfigError
from aiperf.journal.events import Opened, Origin
from aiperf.journal.file import read_journal
from aiperf.journal.replay import Replay, replay
from aiperf.proposing.proposals import libraries, proposals_version
from aiperf.run.checks import starting_graph
from launch.current_job import job_seconds_left
from launch.job import MARGIN_SECONDS
from nas.record import RecordError, graph_from_json


def config_like(path: Path, given: dict[str, Any]) -> tuple[Config, list[str]]:
    """The configuration of a run, or of the run in a package, with the given settings on top, and a list of
    all differences.

    Raises ConfigError if something cannot be the same: the seed is missing, the search is not installed, or
    the job is too short. Raises JournalError or AiperfError if there is no such run.
    """
    with opened(path) as files:
        if not files.journal.exists():
            raise AiperfError(f"--like {path}: no journal found; give a run directory or a package")
        run = replay(read_journal(files.journal))
    was = run.opened.config
    config = with_overrides(was, given)
    _refuse_other_seed(path, run.opened, config)
    _refuse_short_job(config)
    return config, _differences(run, config)


def _refuse_other_seed(path: Path, was: Opened, config: Config) -> None:
    """Refuses a seed that is not the recorded one: its name may be that of a file, which may be missing here,
    or may have changed."""
    name = config.seed_architecture
    if name != was.config.seed_architecture or config.data != was.config.data:
        return  # the run itself checks whether these fit
    remedy = f"write it with `aiperf-hpc graph {path} 0 -o FILE`, and give --seed FILE"
    try:
        recorded = graph_from_json(was.seed_graph)
    except (RecordError, ValueError) as error:
        raise ConfigError(f"--like {path}: its seed architecture is not valid: {error}") from None
    try:
        here = starting_graph(config)
    except ConfigError as error:
        raise ConfigError(f"--like {path}: {error}; {remedy}") from None
    if here.key != recorded.key:
        raise ConfigError(
            f"--like {path}: {name!r} is a different architecture here than in that run; {remedy}"
        )


def _refuse_short_job(config: Config) -> None:
    """Refuses a batch job that is too short: with --like a run is as long as the other one, not as long as
    the job."""
    left = job_seconds_left(os.environ, time.time())
    needed = 60 * config.limits.minutes + MARGIN_SECONDS
    if left is not None and config.limits.minutes and left < needed:
        raise ConfigError(
            f"--like: the span is {config.limits.minutes:g} minutes and the job ends in "
            f"{max(0.0, left) / 60:.0f}; request a longer job, or give --minutes"
        )


def _differences(run: Replay, config: Config) -> list[str]:
    """What differs between a run and the one that would start here: settings, program, search and
    libraries."""
    was, then = run.opened, leaves(run.opened.config)
    found = [
        f"{key} is {now!r}, there {then[key]!r}" for key, now in leaves(config).items() if now != then[key]
    ]
    if was.origin is not Origin.MEASURED:
        found.append(f"that run was {was.origin.value}, and this one trains")
    if was.program != __version__:
        found.append(f"the program is {__version__}, there {was.program}")
    if was.search != (version := proposals_version(config)):
        found.append(f"proposals are those of version {version} of the search, there {was.search}")
    here = libraries(config)
    if then["search.name"] == config.search.name:
        found += [
            f"{name} is {here.get(name, 'not installed')}, there {version}"
            for name, version in was.libraries.items()
            if here.get(name) != version
        ]
    if config.training.step == AUTO_STEP:
        found.append("training.step is auto: it is measured again and may differ")
    return found


def differences_text(path: Path, differences: list[str]) -> str:
    """The differences from the run at `path` in words."""
    listed = "; ".join(differences) or "same configuration"
    return f"like {path}: {listed}; data, devices and ranks are those of this machine"
