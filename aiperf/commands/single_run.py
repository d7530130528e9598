"""Starting or continuing a run in the process of its master, once the options of `run` or `resume` are read.

This is separate from the options, which are also needed where nothing is run: for the help, and for the
scripts of `launch`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import click

from aiperf.commands.messages import say, say_next
from aiperf.commands.reference_run import config_like, differences_text
from aiperf.commands.run_options import RunRequest
from aiperf.config import Config, leaves, with_overrides
from aiperf.errors import ConfigError, StoppedEarly
from aiperf.journal.events import TERMINATED, Origin
from aiperf.journal.file import read_journal
from aiperf.journal.lock import seconds_until_dead
from aiperf.journal.mark import refuse_marked
from aiperf.journal.replay import Replay
from aiperf.journal.replay import replay as replayed
from aiperf.journal.run_files import RUNS, RunFiles
from aiperf.journal.writer import JournalWriter, has_begun
from aiperf.proposing.proposals import with_tuner
from aiperf.ranks.ranks import Ranks
from aiperf.rules.ending import Answer, can_go_on
from aiperf.run.checks import refuse_other_origin
from aiperf.run.display import Display
from aiperf.run.handler import Watch
from aiperf.run.run import begin, new_run_id
from aiperf.run.run import resume as resume_run
from aiperf.wire.formats import AUTO
from analysis.exports.summary import summary_text
from analysis.readings.judgement import glance_at

CODES = {TERMINATED: Answer.INCOMPLETE.exit_code, "interrupted": 130}
"""Exit codes of a run that was stopped before its clock started, by reason; 130 is 128 + SIGINT."""
COARSE_SECONDS = 2.0  # resolution of file times on some file systems


def start_or_continue(
    ranks: Ranks,
    request: RunRequest,
    like: Path | None,
    directory: Path | None,
    again: bool,
    dry_run: bool,
    examples_per_second: float | None,
) -> int:
    """Does the work of `run` in the process that is the master; returns the exit code."""
    if again and not dry_run and directory is not None and has_begun(RunFiles(directory)):
        return continue_run(RunFiles(directory), ranks, request, like)
    if like is None:
        config = request.config()
    else:
        config, differences = config_like(like, request.given())
        say(differences_text(like, differences))
    files = RunFiles(directory or RUNS / new_run_id(config))
    if dry_run:
        from aiperf.run.rehearsal import rehearsal_text

        click.echo(rehearsal_text(config, ranks, examples_per_second))
        return 0
    return _shown(files, ranks, lambda show: begin(config, files, ranks, show))


def continue_run(
    files: RunFiles, ranks: Ranks, request: RunRequest | None = None, like: Path | None = None
) -> int:
    """Continues a run and returns the exit code. A complete run is only shown, because a scheduler that
    queues a job again repeats the same command."""
    replay = replayed(read_journal(files.journal))
    if replay.opened.origin is Origin.SIMULATED:
        refuse_marked(replay.opened.origin, files.directory, "be continued; start a new run")
    if request is not None:
        config, given = replay.opened.config, request.given()
        wanted = with_overrides(config, given) if like is None else config_like(like, given)[0]
        _refuse_other_options(config, wanted, files)
    if not can_go_on(replay):
        if replay.leg.ended is None:
            return _end_without_result(files)
        say(f"the run in {files.directory} is complete; this is its result")
        return _result(replay, files)
    refuse_other_origin(replay, ranks, files)
    if request is not None:  # a person can wait, and sees what for
        _let_the_lock_age(files)
    return _shown(files, ranks, lambda show: resume_run(files, ranks, show))


def _end_without_result(files: RunFiles) -> int:
    """The exit code of a run that was killed and has neither time left nor a network to test. Its journal
    alone does not say whether the run is in progress, but its lock does; as INCOMPLETE, a scheduler would
    queue it again for ever."""
    JournalWriter.resume(files, lambda line: None).close()  # refuses a run in progress
    why = "the run was killed, its time is over, and no network was validated; start a new run"
    say(f"NO RESULT: {files.directory}: {why}")
    return Answer.NO_RESULT.exit_code


def _refuse_other_options(config: Config, wanted: Config, files: RunFiles) -> None:
    """Refuses options that differ from the configuration of the run, because they would be ignored."""
    wanted, _ = with_tuner(wanted)
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
    """Waits until the lock of a killed leg of another host has expired. A scheduler that restarts the job
    knows that its master is dead. A run that goes on is refused at once."""
    seconds = seconds_until_dead(files.lock, beside=files.journal)
    if seconds:
        say(f"waiting {seconds + COARSE_SECONDS:.0f} s: only silence shows that the last leg has ended")
        time.sleep(seconds + COARSE_SECONDS)


def _shown(files: RunFiles, ranks: Ranks, leg: Callable[[Watch], Replay]) -> int:
    """Runs a leg and shows its progress; returns the exit code."""
    try:
        with Display(files, ranks.terminal) as display:
            replay = leg(display.show)
    except StoppedEarly as error:
        say(str(error))
        return CODES[error.reason]
    return _result(replay, files)


def _result(replay: Replay, files: RunFiles) -> int:
    """Prints the result of a run, and what comes next; returns the exit code."""
    judged = glance_at(files, replay)
    verdict = judged.verdict
    click.echo(summary_text(judged))
    if verdict.answer is not Answer.NO_RESULT:  # then the line of the verdict says what to do
        say_next("resume" if verdict.answer is Answer.INCOMPLETE else "report", files.directory)
    if replay.leg.ended is not None and replay.leg.ended.reason == "interrupted":
        return CODES["interrupted"]
    # If the run can be continued, this is the exit code, whatever else the verdict is.
    return (verdict.shortfall.answer if verdict.shortfall else verdict.answer).exit_code
