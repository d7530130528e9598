"""Repeated runs, each started by a separate command, and how far their results differ.

Separate commands are used because the ranks of a run end with it, and because no run may profit from what an
earlier one left in its processes.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from aiperf.commands.compare import spread_of
from aiperf.commands.messages import say
from aiperf.commands.reference_run import config_like
from aiperf.commands.run_options import RunRequest
from aiperf.config import load_preset, with_overrides
from aiperf.errors import ConfigError
from aiperf.host.scheduler_warning import noted
from aiperf.journal.run_files import RUNS, RunFiles
from aiperf.ranks.ranks import PROGRAM, run_for_this
from aiperf.rules.ending import Answer
from aiperf.run.run import new_run_id
from launch.current_job import job_seconds_left
from nas.frozen import frozen

INTERRUPTED, STOPPED = 130, Answer.INCOMPLETE.exit_code
"""Exit codes of a run that Ctrl-C ended, and of one that can be continued."""
GOING_ON = (0, Answer.SIMULATED.exit_code)
"""Exit codes of a run after which the next one starts."""
FINAL = (1, 2, Answer.NO_RESULT.exit_code)
"""Exit codes of a run that cannot be continued; it has reported the reason."""


@frozen
class Series:
    """A series of runs: the command that is repeated, how often and where."""

    directory: Path
    seeds: tuple[int, ...]
    """Random seed of each run."""
    words: tuple[str, ...]
    """Arguments of the command `run`, without the random seed and the directory."""

    def place(self, number: int) -> Path:
        """The directory of a run; the first is 1. Numbers and not seeds, because several runs may have one
        seed."""
        return self.directory / str(number)

    @property
    def places(self) -> list[Path]:
        """The directories of all runs, in their order."""
        return [self.place(number) for number in range(1, len(self.seeds) + 1)]

    def command(self, number: int) -> list[str]:
        """The command of a run. It has --resume, so that a complete run is only shown, and a stopped one
        continues."""
        seed = ("--set", f"random_seed={self.seeds[number - 1]}")
        return [*PROGRAM, "run", *self.words, *seed, "--directory", str(self.place(number)), "--resume"]


def repeat(
    request: RunRequest,
    like: Path | None,
    directory: Path | None,
    again: bool,
    repeats: int,
    same_seed: bool,
    rank_words: Sequence[str],
) -> int:
    """Does the work of `run --repeats`; returns the exit code of the last run that was started.

    Raises AiperfError for settings that are not valid for a run, and for a directory with runs, unless they
    are to be continued.
    """
    given = request.given()
    if like is None:
        config, words = with_overrides(load_preset(request.preset), given), request.words()
    else:  # its configuration takes the place of a preset
        config, words = config_like(like, given)[0], ["--like", str(like), *request.words()[2:]]
    _refuse_length_of_the_job(request, like)
    is_one_seed = same_seed or config.ranked  # of a ranked run it is not a person's choice
    series = Series(
        directory or RUNS / new_run_id(config),
        tuple(config.random_seed + (0 if is_one_seed else number) for number in range(repeats)),
        (*words, *rank_words),
    )
    if not again and any(os.path.lexists(RunFiles(place).journal) for place in series.places):
        raise ConfigError(
            f"{series.directory} has runs already; add --resume to continue them, or choose another "
            "--directory"
        )
    code, number = _run_all(series)
    if code in GOING_ON:
        click.echo(f"\n{spread_of(series.places)}", nl=False)
        return code
    text = f"stopped at run {number} of {repeats}, exit code {code}"
    if code not in FINAL:
        missing = [] if directory else ["--directory", str(series.directory)]
        command = shlex.join(["aiperf-hpc", *sys.argv[1:], *missing, *([] if again else ["--resume"])])
        text += f"; to continue: {command}"
    say(text)
    return code


def _refuse_length_of_the_job(request: RunRequest, like: Path | None) -> None:
    """Refuses a series in a batch job without a given length of its runs: by default a run takes the time
    that is left, so the first run would take all of it."""
    is_given = like is not None or request.minutes is not None or request.hours is not None
    if not is_given and job_seconds_left(os.environ, time.time()) is not None:
        raise ConfigError("--repeats in a batch job: give the length of each run with --minutes or --hours")


def _run_all(series: Series) -> tuple[int, int]:
    """The exit code of the last run that was started, and its number."""
    code, last = 0, len(series.seeds)
    for number, seed in enumerate(series.seeds, start=1):
        say(f"run {number} of {last}, random seed {seed}, in {series.place(number)}")
        code = _run_one(series, number)
        if noted() and code in GOING_ON and number < last:
            code = STOPPED
        if code not in GOING_ON:
            return code, number
    return code, last


def _run_one(series: Series, number: int) -> int:
    """Runs one command to its end; returns its exit code, or that of an interruption or of a warning."""
    if noted():
        return STOPPED
    try:  # Ctrl-C ends the run with a result; a scheduler's warning ends it so that it can be continued
        code, interrupted = run_for_this(series.command(number), os.environ, (signal.SIGUSR1, signal.SIGINT))
    except KeyboardInterrupt:  # it has not started yet
        return INTERRUPTED
    return INTERRUPTED if interrupted and code in (*GOING_ON, STOPPED) else code
