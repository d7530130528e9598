"""Sub-commands that read a journal: they start no training and change nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aiperf.commands.extras import extra, refuse_no_run
from aiperf.commands.options import (
    PATH,
    device_option,
    only_with,
    opened,
    run_argument,
    run_or_package_argument,
    say_next,
)
from aiperf.errors import AiperfError
from aiperf.files import RunFiles
from aiperf.journal.replay import Replay
from aiperf.rules.ending import Answer
from aiperf.rules.verdict import Verdict
from aiperf.wording import plain
from analysis.exports.summary import findings_text, status_text, summary_text
from analysis.readings import validation
from analysis.readings.judgement import COUNTED_AGAIN, Judged, examine, glance, glance_at, read_run
from analysis.readings.live import Follower, silent_seconds
from analysis.readings.run_tables import engines
from nas.record import encode

if TYPE_CHECKING:
    from aiperf.training.reevaluation import SecondResult

NOT_JUDGED = 2
LEAST_SECONDS = 1.0
"""Minimum time between two readings of a watched run in seconds."""
SHARE_OF_TIME = 0.05
"""Maximum fraction of the time that is spent on reading and showing."""


def result_text(run: Replay, files: RunFiles) -> tuple[str, Verdict]:
    """The summary of a run for its end, and the verdict that it contains."""
    judged = glance_at(files, run)
    return summary_text(judged), judged.verdict


@click.command()
@run_or_package_argument
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with all digits.")
def score(path: Path, as_json: bool) -> int:
    """Compute the result from the journal, to the last digit.

    Operations are recounted in runs of up to 500 trials. In longer runs they are taken from the journal, and
    the result is NOT VALIDATED until you have validated the run here. Exit codes: 0 VALID, 1 INVALID, 2 NOT
    VALIDATED, 3 NO RESULT, 4 SIMULATED, 75 INCOMPLETE. In the JSON, a run that is not VALID also has "answer"
    and "cause", and one that was not measured has "origin".
    """
    with opened(path) as files:
        judged = glance(files)
        if as_json:
            from analysis.exports.result import answered, unmeasured

            told = {} if judged.valid else {**answered(judged), **unmeasured(judged.replay)}
            record = {**told, **encode(judged.score), "engines": encode(engines(judged.replay))}
            text = json.dumps(record)
        else:
            text = summary_text(judged)
        # The folder of a package is removed afterwards.
        click.echo(text.replace(str(files.directory), str(path)))
        unsure = judged.verdict.valid and not judged.validated
        return NOT_JUDGED if unsure else judged.verdict.answer.exit_code


@click.command()
@run_argument
@click.option("--watch", is_flag=True, help="Refresh until the run ends or Ctrl-C is pressed.")
def status(directory: Path, watch: bool) -> None:
    """Show the state of a run, during the run or afterwards."""
    files = RunFiles(directory)
    if watch:
        _watch(files)
        return
    click.echo(status_text(read_run(files), files, silent_seconds(files)))


def _watch(files: RunFiles) -> None:
    """Shows the run until it has a result or cannot have one, or until Ctrl-C. Raises JournalError."""
    from rich.console import Console  # takes a while, and no other command here needs it
    from rich.live import Live
    from rich.text import Text

    from analysis.exports.watch import watch_text

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
                    if _over(follower):
                        break
                time.sleep(max(LEAST_SECONDS, (time.monotonic() - begun) / SHARE_OF_TIME))
        except KeyboardInterrupt:  # the way to end it
            pass
    if not console.is_terminal:  # rich ends its last line in a terminal only
        console.line()


def _over(follower: Follower) -> bool:
    """Whether the run has a result, or will have none."""
    found = follower.shortfall(follower.silent_seconds)
    return found is None or found.answer is Answer.NO_RESULT


@click.command()
@run_or_package_argument
@click.option(
    "--reevaluate",
    "again",
    is_flag=True,
    help="Re-evaluate the best network, and those of spot checks, from their weights.",
)
@click.option(
    "--data",
    default="",
    help="For --reevaluate: where the data is now, if it was moved.",
)
@device_option
@click.option(
    "--notaries", type=PATH, help="Register of notaries: one public key and name per line; see `rank --keys`."
)
def validate(path: Path, again: bool, data: str, device: str, notaries: Path | None) -> int:
    """Check every rule against the journal, and recount all operations.

    For a package (*.tar.gz), the checksums, results and signature are checked as well. The findings on a long
    run are kept in your own cache folder, for `report` and the other views. With --notaries, a line says how
    far a notary has signed the journal, which changes no verdict. Exit codes: 0 VALID, of any class; 1
    INVALID; 2 nothing could be read; 3 NO RESULT; 4 SIMULATED; 75 INCOMPLETE.
    """
    only_with("--reevaluate", again, "data", "device")
    try:
        return _validate(path, again, data, device, notaries)
    except AiperfError as error:
        click.echo(plain(f"aiperf-hpc: {error}"), err=True)
        return NOT_JUDGED


def _validate(path: Path, again: bool, data: str, device: str, notaries: Path | None) -> int:
    if again:
        refuse_no_run()
    label = _labelled(notaries)
    if path.is_file():
        evaluate = partial(_reevaluated, device=device, data=data) if again else None
        return _validate_package(path, label, evaluate)
    if not path.is_dir():
        raise AiperfError(f"{path} does not exist; give a run directory or a package")
    files = RunFiles(path)
    judged = examine(files, partial(click.echo, err=True))
    run, verdict = judged.replay, judged.verdict
    click.echo(findings_text(verdict))
    label(judged)
    _keep(judged)
    if verdict.valid and not again:
        say_next("package", path)
    agrees = _reevaluated(run, files, device, data) if again else True
    return (verdict.answer if agrees else Answer.INVALID).exit_code


def _labelled(notaries: Path | None) -> Callable[[Judged], None]:
    """What prints how far one of these notaries has signed a run; nothing without a list of them."""
    if notaries is None:
        return lambda judged: None
    with extra("report"):
        from analysis.submissions.keys import read_keys
        from analysis.submissions.notarised import notarised
    register = read_keys(notaries)

    def label(judged: Judged) -> None:
        click.echo(plain(notarised(judged.files, judged.replay, register).text))

    return label


def _validate_package(
    path: Path,
    label: Callable[[Judged], None],
    again: Callable[[Replay, RunFiles], bool] | None,
) -> int:
    """Prints every rule's finding for every run, then the answer with the reasons; gives its exit code.

    `label` prints more about a run. `again` evaluates the best network of a run again, and answers whether
    it agrees.
    """
    with extra("report"):
        from analysis.submissions.verify import checked
    with checked(path, partial(click.echo, err=True)) as submission:
        for run in submission.runs:
            click.echo(f"runs/{run.name}")
            click.echo(findings_text(run.judged.verdict))
            label(run.judged)
            _keep(run.judged)
        for reason in [*submission.reasons, *(reason for run in submission.runs for reason in run.reasons)]:
            click.echo(plain(f"{reason.where}: {reason.text}"))
        signed = "not signed" if submission.signed_by is None else f"signed by {submission.signed_by}"
        click.echo(f"manifest {submission.manifest_sha256}, {signed}")
        agrees = [_agrees(again, run.judged, path) for run in submission.runs] if again else []
        answer = submission.answer if all(agrees) else Answer.INVALID
        click.echo(f"package {answer.value}")
        return answer.exit_code


def _agrees(again: Callable[[Replay, RunFiles], bool], judged: Judged, path: Path) -> bool:
    files, tested = judged.files, judged.replay.tested
    where = f"{path}: runs/{files.directory.name}"
    if tested is not None and not files.weights(tested.trial).is_file():
        raise AiperfError(f"{where} has no weights; ask for a package made with `package --with-weights`")
    try:
        return again(judged.replay, files)
    except AiperfError as error:
        raise AiperfError(str(error).replace(str(files.directory), where)) from None


def _reevaluated(run: Replay, files: RunFiles, device: str, data: str) -> bool:
    from aiperf.training.reevaluation import reevaluate  # torch, which judging does without

    seen = reevaluate(run, files, device, data)
    parts = {"test": seen.test, "validation": seen.validation, "test, top-5": seen.top5}
    for part, again in parts.items():
        if again is not None:
            click.echo(_reevaluated_text(seen.trial, part, again))
    for trial, again in seen.spot_checks.items():
        click.echo(_reevaluated_text(trial, "spot check, validation", again))
    return seen.agrees


def _reevaluated_text(trial: int, part: str, again: SecondResult) -> str:
    found, recorded = again.found.text(), again.recorded.text()
    agrees = "agrees" if again.agrees else "DIFFERS"
    return f"reevaluated: trial {trial}, {part}: {found} here, {recorded} in the journal: {agrees}"


def _keep(judged: Judged) -> None:
    """Keeps the findings on a run of which views do not make them again. If that fails, the run is validated
    all the same, and this is reported."""
    if len(judged.replay.trials) <= COUNTED_AGAIN:
        return
    lost = validation.save(judged.files, judged.replay, judged.verdict.findings, judged.layers or {})
    if lost:
        click.echo(plain(f"not kept for `report`: {lost}"), err=True)
