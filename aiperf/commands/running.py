"""Sub-commands that measure: they start processes and write a journal."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click

from aiperf.commands.asked import Asked
from aiperf.commands.extras import refuse_no_run
from aiperf.commands.like import config_like, told
from aiperf.commands.looking.results import result_text
from aiperf.commands.options import (
    PATH,
    Number,
    config_options,
    is_typed,
    only_with,
    pretend_option,
    rank_options,
    run_argument,
)
from aiperf.config import Config, leaves, preset_names, preset_text, with_overrides
from aiperf.errors import ConfigError, StoppedEarly
from aiperf.files import RunFiles
from aiperf.journal.events import TERMINATED, Origin
from aiperf.journal.file import read_journal
from aiperf.journal.lock import SILENCE_SECONDS
from aiperf.journal.mark import refuse_marked
from aiperf.journal.place import never_begun
from aiperf.journal.replay import Replay
from aiperf.journal.replay import replay as replayed
from aiperf.pretending.assumptions import assumed
from aiperf.proposing.proposals import resolved
from aiperf.ranks.ranks import Ranks, Wanted, across
from aiperf.rules.ending import Answer, can_go_on
from aiperf.run.display import Display
from aiperf.run.master import Watch
from aiperf.run.origins import refuse_other_origin
from aiperf.run.run import begin, new_run_id
from aiperf.run.run import resume as resume_run
from aiperf.wire.formats import AUTO
from aiperf.wording import plain
from analysis.exports.summary import WIDTH

CODES = {TERMINATED: Answer.INCOMPLETE.exit_code, "interrupted": 130}
"""Of a run that was stopped before its clock started. 128 + SIGINT."""
COARSE_SECONDS = 2.0  # of the times of files on some file systems


@click.command()
@click.argument("name", required=False)
def preset(name: str | None) -> None:
    """Print a preset, to edit and use with `run --preset FILE.toml`. Without a name: list the presets."""
    if name:
        click.echo(preset_text(name), nl=False)
        return
    names = preset_names()
    for each in names:
        about = preset_text(each).partition("\n")[0].removeprefix("# ")
        click.echo(f"{each:<{max(map(len, names))}}  {about}")


@click.command()
@config_options
@click.option(
    "--like",
    metavar="RUN|PACKAGE",
    type=PATH,
    help="Take all settings from that run instead of a preset; options on the command line override them.",
)
@click.option("--directory", type=PATH, help="Run directory; default: runs/<time>-<preset>.")
@click.option("--resume", "again", is_flag=True, help="Continue the run in --directory if there is one.")
@rank_options
@pretend_option
@click.option("--dry-run", is_flag=True, help="Show the plan and the estimated time, then exit.")
@click.option(
    "--examples-per-second",
    type=Number(1e-6, 1e15),
    help="For --dry-run: training rate of the seed on another machine, in images or windows per second; "
    "default: measured on this one.",
)
def run(
    asked: Asked,
    like: Path | None,
    directory: Path | None,
    again: bool,
    wanted: Wanted,
    pretend: str | None,
    dry_run: bool,
    examples_per_second: float | None,
) -> int:
    """Benchmark this machine: train growing networks on real images or text until time is up.

    By default it uses all devices of the machine; on several nodes, start it with mpiexec or srun. Settings
    without an option come from the preset; in a batch job, the timed span is fitted to the job's time limit.
    """

    def lead(ranks: Ranks) -> int:
        if again and not dry_run and directory is not None and _was_begun(RunFiles(directory)):
            return _go_on(RunFiles(directory), ranks, asked, like)
        if like is None:
            config = asked.config()
        else:
            config, differences = config_like(like, asked.given())
            click.echo(plain(told(like, differences)), err=True)
        files = RunFiles(directory or Path("runs") / new_run_id(config))
        if dry_run:
            from aiperf.run.rehearsal import rehearsal_text

            click.echo(rehearsal_text(config, ranks, examples_per_second))
            return 0
        return _shown(files, ranks, lambda show: begin(config, files, ranks, show))

    only_with("--dry-run", dry_run, "examples_per_second")
    if like is not None and is_typed("name"):
        raise click.UsageError("give --preset or --like, not both", click.get_current_context())
    if again and directory is None:
        raise click.UsageError("--resume needs the --directory of the run", click.get_current_context())
    refuse_no_run()
    return across(_pretending(wanted, pretend), lead)


@click.command()
@run_argument
@rank_options
@pretend_option
def resume(directory: Path, wanted: Wanted, pretend: str | None) -> int:
    """Continue a run that was stopped or killed. At most the trials in flight are lost.

    The number of ranks may differ from before. If the run is complete, its result is shown.
    """
    refuse_no_run()
    return across(_pretending(wanted, pretend), lambda ranks: _go_on(RunFiles(directory), ranks))


def _pretending(wanted: Wanted, pretend: str | None) -> Wanted:
    return replace(wanted, pretend=assumed(pretend)) if pretend else wanted


def _go_on(files: RunFiles, ranks: Ranks, asked: Asked | None = None, like: Path | None = None) -> int:
    """It may be done already: a scheduler that queues its job again gives the same command again."""
    replay = replayed(read_journal(files.journal))
    if replay.opened.origin is Origin.SIMULATED:
        refuse_marked(replay.opened.origin, files.directory, "be continued; start a new run")
    if asked is not None:
        config, given = replay.opened.config, asked.given()
        wanted = with_overrides(config, given) if like is None else config_like(like, given)[0]
        _refuse_other_options(config, wanted, files)
    if not can_go_on(replay):
        click.echo(f"aiperf-hpc: the run in {files.directory} is complete; this is its result", err=True)
        return _result(replay, files)
    refuse_other_origin(replay, ranks, files)
    if asked is not None:  # a person can wait, and sees what for
        _let_the_lock_age(files)
    return _shown(files, ranks, lambda show: resume_run(files, ranks, show))


def _was_begun(files: RunFiles) -> bool:
    return os.path.lexists(files.journal) and not never_begun(files.journal)


def _refuse_other_options(config: Config, wanted: Config, files: RunFiles) -> None:
    """A run is one configuration; an option given now that would be ignored is reported."""
    wanted, _ = resolved(wanted)
    was = leaves(config)
    if other := [
        f"{key} is {was[key]!r} there, not {now!r}"
        for key, now in leaves(wanted).items()
        if now not in (was[key], AUTO)
    ]:
        raise ConfigError(
            f"{files.directory} was started with other settings: {', '.join(other)}; omit those options, or "
            f"choose another --directory"
        )


def _let_the_lock_age(files: RunFiles) -> None:
    """The master of a killed leg is taken for dead so long after its last line, and the scheduler says that
    it is: this waits for the rest. One that ended by itself has emptied its lock."""
    if files.lock.exists() and files.lock.stat().st_size:
        os.utime(files.lock)  # both ages from the file server: no host's clock is compared with it
        age = files.lock.stat().st_mtime - files.journal.stat().st_mtime
        time.sleep(max(0.0, min(SILENCE_SECONDS, SILENCE_SECONDS - age) + COARSE_SECONDS))


def _shown(files: RunFiles, ranks: Ranks, leg: Callable[[Watch], Replay]) -> int:
    try:
        with Display(files, ranks.terminal) as display:
            replay = leg(display.show)
    except StoppedEarly as error:
        click.echo(f"aiperf-hpc: {error}", err=True)
        return CODES[error.reason]
    return _result(replay, files)


def _result(replay: Replay, files: RunFiles) -> int:
    text, verdict = result_text(replay, files)
    click.echo(text)
    if verdict.answer is Answer.NO_RESULT:
        click.echo(plain(f"aiperf-hpc: NO RESULT: {verdict.cause}"), err=True)
    else:
        click.echo(f"{'web page':<{WIDTH}}aiperf-hpc report {files.directory}")
    if replay.leg.ended is not None and replay.leg.ended.reason == "interrupted":
        return CODES["interrupted"]
    # Of a run that is to be continued, whatever may be wrong with it.
    return (verdict.shortfall.answer if verdict.shortfall else verdict.answer).exit_code
