"""Sub-commands that measure: they start processes and write a journal."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import click

from aiperf.commands.options import rank_options
from aiperf.commands.results import result_text
from aiperf.config import (
    FORMATS,
    SEARCHES,
    Config,
    load_preset,
    parse_setting,
    preset_names,
    preset_text,
    with_overrides,
)
from aiperf.display import Display
from aiperf.errors import ConfigError
from aiperf.files import RunFiles
from aiperf.ranks import Ranks, Wanted, across
from aiperf.replay import Replay
from aiperf.run import begin, new_run_id
from aiperf.run import resume as resume_run
from aiperf.scheduler import MARGIN_SECONDS, job_seconds_left

__all__ = ["preset", "resume", "run"]

CONTINUE, INTERRUPTED = 75, 130  # EX_TEMPFAIL of sysexits.h: come again; 128 + SIGINT


@click.command()
@click.argument("name", required=False)
def preset(name: str | None) -> None:
    """Print a preset, to be edited and given to `run --preset FILE.toml`. Without a name: list them."""
    click.echo(preset_text(name) if name else "\n".join(preset_names()), nl=name is None)


@click.command()
@click.option(
    "--preset",
    "name",
    default="digits",
    show_default=True,
    metavar="NAME|FILE",
    help="What is run: digits, synthetic or ranked, or a TOML file.",
)
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    help="Where the run is written; default: runs/<time>-<preset>.",
)
@click.option(
    "--minutes", type=click.FloatRange(min=0, min_open=True), help="Length of the timed span [min]."
)
@click.option("--hours", type=click.FloatRange(min=0, min_open=True), help="Length of the timed span [h].")
@click.option("--max-trials", type=click.IntRange(1), help="End after so many trials.")
@click.option(
    "--target-error",
    type=click.FloatRange(0, 1, min_open=True),
    help="End at this validation error [0 to 1].",
)
@click.option("--data", "path", help="Folder of the images, for sets that are not bundled.")
@click.option(
    "--seed", metavar="NAME|FILE", help="Starting architecture: a seed's name or a graph's JSON file."
)
@click.option("--search", type=click.Choice(SEARCHES), help="How architectures are found.")
@click.option("--format", "format_", type=click.Choice(FORMATS), help="Format of the multiplications.")
@click.option("--batch-size", type=click.IntRange(2), help="Images a step, over all devices of a group.")
@click.option(
    "--random-seed", type=click.IntRange(0), help="Of the search, the data's order and the weights."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Any other key of the preset, as training.learning_rate=0.05; may be repeated.",
)
@rank_options
@click.option("--dry-run", is_flag=True, help="Say what would happen and how long it would take, and end.")
@click.option(
    "--images-per-second",
    type=click.FloatRange(min=0, min_open=True),
    help="For --dry-run: the seed's training rate on another machine, instead of measuring this one.",
)
def run(
    name: str,
    directory: Path | None,
    minutes: float | None,
    hours: float | None,
    settings: tuple[str, ...],
    wanted: Wanted,
    dry_run: bool,
    images_per_second: float | None,
    **options: Any,
) -> int:
    """Measure this machine: train growing networks on real images until the time is over.

    With several devices it uses all of them; on several nodes, start it by mpiexec or srun.
    """

    def lead(ranks: Ranks) -> int:
        config = _config(name, minutes, hours, settings, options)
        files = RunFiles(directory or Path("runs") / new_run_id(config))
        if dry_run:
            from aiperf.rehearsal import rehearsal_text

            click.echo(rehearsal_text(config, ranks, images_per_second))
            return 0
        with Display(files, ranks.terminal) as display:
            replay = begin(config, files, ranks, display.show)
        return _result(replay, files)

    return across(wanted, lead)


@click.command()
@click.argument("directory", metavar="RUN", type=click.Path(path_type=Path))
@rank_options
def resume(directory: Path, wanted: Wanted) -> int:
    """Continue a run that was stopped or killed, where it stands. It loses at most the trials in flight.

    The number of ranks may be another than before.
    """

    def lead(ranks: Ranks) -> int:
        files = RunFiles(directory)
        with Display(files, ranks.terminal) as display:
            replay = resume_run(files, ranks, display.show)
        return _result(replay, files)

    return across(wanted, lead)


def _result(replay: Replay, files: RunFiles) -> int:
    click.echo(result_text(replay, files))
    ended = replay.leg.ended
    reason = ended.reason if ended else ""
    return {"interrupted": INTERRUPTED, "terminated": CONTINUE}.get(reason, 0)


def _config(
    name: str, minutes: float | None, hours: float | None, settings: tuple[str, ...], options: dict[str, Any]
) -> Config:
    config = load_preset(name)
    keys = {
        "max_trials": "limits.max_trials",
        "target_error": "limits.target_error",
        "path": "data.path",
        "seed": "seed_architecture",
        "search": "search.name",
        "format_": "training.format",
        "batch_size": "training.batch_size",
        "random_seed": "random_seed",
    }
    overrides = {keys[option]: value for option, value in options.items() if value is not None}
    if minutes is not None and hours is not None:
        raise ConfigError("--minutes and --hours are both given; give one")
    length = minutes if minutes is not None else None if hours is None else 60 * hours
    if length is None:
        length = _minutes_of_the_job()
    if length is not None:
        overrides["limits.minutes"] = length
    return with_overrides(config, overrides | dict(map(parse_setting, settings)))


def _minutes_of_the_job() -> float | None:
    """Inside a scheduler's job its limit is the default, less what initialisation and the test take."""
    left = job_seconds_left(os.environ, time.time())
    if left is None:
        return None
    if left <= MARGIN_SECONDS:
        raise ConfigError(
            f"the job ends in {left:.0f} s; the run needs {MARGIN_SECONDS:.0f} s beside its span"
        )
    return (left - MARGIN_SECONDS) / 60
