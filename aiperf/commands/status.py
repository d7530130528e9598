"""`list` and `status`: the runs of a directory, and the state of one run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aiperf.commands.arguments import PATH, run_argument
from aiperf.commands.messages import say, say_next
from aiperf.commands.optional_libraries import extra
from aiperf.journal.run_files import RUNS, RunFiles, run_directories
from aiperf.rules.ending import Answer

if TYPE_CHECKING:
    from analysis.readings.live import Follower

LEAST_SECONDS = 1.0
"""Minimum time in seconds between two readings of a watched run."""
SHARE_OF_TIME = 0.05
"""Maximum fraction of the time that is spent on reading and showing, because the run uses the same disk."""


@click.command("list")
@click.argument("directory", type=PATH, default=RUNS)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with all digits.")
def list_runs(directory: Path, as_json: bool) -> int:
    """List the runs of a directory (default: runs), or one run, with score and verdict, one per line.

    Exit code 1 if a run cannot be read.
    """
    with extra("report"):
        from analysis.exports.runs import Listed, runs_json, runs_text
    runs = [directory] if RunFiles(directory).journal.is_file() else run_directories(directory)
    listed = [Listed.of(RunFiles(each)) for each in runs]
    for each in listed:
        if each.problem:
            say(each.problem)
    if as_json:
        click.echo(runs_json(listed), nl=False)
    elif listed:
        click.echo(runs_text(listed))
        if readable := [run for run, each in zip(runs, listed) if not each.problem]:
            say_next("report", readable[-1])
    else:
        click.echo(f"no run in {directory}; `aiperf-hpc run` makes one")
    return int(any(each.problem for each in listed))


@click.command()
@run_argument
@click.option("--watch", is_flag=True, help="Refresh until the run ends or Ctrl-C is pressed.")
def status(directory: Path, watch: bool) -> None:
    """Show the state of a run, during the run or afterwards."""
    from analysis.exports.summary import status_text
    from analysis.readings.judgement import read_run
    from analysis.readings.live import silent_seconds

    files = RunFiles(directory)
    if watch:
        _watch(files)
    else:
        click.echo(status_text(read_run(files), files, silent_seconds(files)))


def _watch(files: RunFiles) -> None:
    """Shows the run until it has a result or cannot have one, or until Ctrl-C. Raises JournalError."""
    from rich.console import Console  # takes a while, and no other command here needs it
    from rich.live import Live
    from rich.text import Text

    from analysis.exports.watch import watch_text
    from analysis.readings.live import Follower

    follower, console = Follower(files), Console(highlight=False)
    follower.update()
    with Live(console=console, auto_refresh=False, screen=False) as live:
        try:
            while True:
                begun = time.monotonic()
                follower.update()
                if follower.replay.lines:
                    text = watch_text(
                        follower.snapshot(follower.silent_seconds), console.width, console.height
                    )
                    live.update(Text(text, no_wrap=True, overflow="crop"), refresh=True)
                    if _is_over(follower):
                        break
                time.sleep(max(LEAST_SECONDS, (time.monotonic() - begun) / SHARE_OF_TIME))
        except KeyboardInterrupt:  # the way to end it
            pass
    if not console.is_terminal:  # rich ends its last line in a terminal only
        console.line()


def _is_over(follower: Follower) -> bool:
    """Whether the run has a result, or will have none."""
    shortfall = follower.shortfall(follower.silent_seconds)
    return shortfall is None or shortfall.answer is Answer.NO_RESULT
