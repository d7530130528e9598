"""`validate`: every rule is checked, and all operations are recounted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aiperf.commands.arguments import PATH, device_option, only_with, run_or_package_argument
from aiperf.commands.messages import say, say_line, say_next
from aiperf.commands.optional_libraries import extra, refuse_no_run
from aiperf.commands.user_files import no_run
from aiperf.errors import AiperfError
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.rules.ending import Answer
from aiperf.wording import plain
from analysis.exports.summary import findings_text
from analysis.readings import validation
from analysis.readings.judgement import COUNTED_AGAIN, Judged, examine

if TYPE_CHECKING:
    from aiperf.training.reevaluation import SecondResult

UNREADABLE = 2
"""Exit code if nothing could be read, so that no rule was checked."""


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
    metavar="PATH",
    default="",
    show_default=False,
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
        say(str(error))
        return UNREADABLE


def _validate(path: Path, again: bool, data: str, device: str, notaries: Path | None) -> int:
    """Validates a run or a package; returns the exit code. Raises AiperfError if it cannot be read."""
    if again:
        refuse_no_run()
    register = _registered(notaries)
    if path.is_file():
        evaluate = partial(_reevaluate, device=device, data=data) if again else None
        return _validate_package(path, register, evaluate)
    if not path.is_dir():
        raise AiperfError(no_run(path))
    files = RunFiles(path)
    judged = examine(files, say_line)
    run, verdict = judged.replay, judged.verdict
    _show(judged, register)
    if verdict.valid and not again:
        say_next("package", path)
    agrees = _reevaluate(run, files, device, data) if again else True
    return (verdict.answer if agrees else Answer.INVALID).exit_code


def _registered(notaries: Path | None) -> Mapping[str, str] | None:
    """The names of notaries by their public keys; None without a list of them."""
    if notaries is None:
        return None
    with extra("report"):
        from analysis.submissions.keys import read_keys
    return read_keys(notaries)


def _show(judged: Judged, register: Mapping[str, str] | None) -> None:
    """Prints every rule's finding for a run and how far a notary has signed it, and keeps the findings."""
    click.echo(findings_text(judged.verdict))
    if register is not None:
        with extra("report"):
            from analysis.submissions.notarisation import notarised
        click.echo(plain(notarised(judged.files, judged.replay, register).text))
    _keep(judged)


def _validate_package(
    path: Path, register: Mapping[str, str] | None, again: Callable[[Replay, RunFiles], bool] | None
) -> int:
    """Prints every rule's finding for every run, then the reasons and the answer; returns the exit code.

    `again` evaluates the best network of a run again, and answers whether it agrees.
    """
    with extra("report"):
        from analysis.submissions.verify import checked
    with checked(path, say_line) as submission:
        for run in submission.runs:
            click.echo(f"runs/{run.name}")
            _show(run.judged, register)
        for reason in [*submission.reasons, *(reason for run in submission.runs for reason in run.reasons)]:
            click.echo(plain(f"{reason.where}: {reason.text}"))
        signed = "not signed" if submission.signed_by is None else f"signed by {submission.signed_by}"
        click.echo(f"manifest {submission.manifest_sha256}, {signed}")
        agrees = [_agrees(again, run.judged, path) for run in submission.runs] if again else []
        answer = submission.answer if all(agrees) else Answer.INVALID
        click.echo(f"package {answer.value}")
        return answer.exit_code


def _agrees(again: Callable[[Replay, RunFiles], bool], judged: Judged, path: Path) -> bool:
    """Whether a run of the package at `path` agrees. Errors name the run in the package, not the folder to
    which it was unpacked."""
    files, tested = judged.files, judged.replay.tested
    where = f"{path}: runs/{files.directory.name}"
    if tested is not None and not files.weights(tested.trial).is_file():
        raise AiperfError(f"{where} has no weights; ask for a package made with `package --with-weights`")
    try:
        return again(judged.replay, files)
    except AiperfError as error:
        raise AiperfError(str(error).replace(str(files.directory), where)) from None


def _reevaluate(run: Replay, files: RunFiles, device: str, data: str) -> bool:
    """Evaluates the kept networks of a run again and prints each result; whether all agree."""
    from aiperf.training.reevaluation import reevaluate  # torch, which judging does without

    result = reevaluate(run, files, device, data)
    parts = {"test": result.test, "validation": result.validation, "test, top-5": result.top5}
    for part, again in parts.items():
        if again is not None:
            click.echo(_reevaluated_text(result.trial, part, again))
    for trial, again in result.spot_checks.items():
        click.echo(_reevaluated_text(trial, "spot check, validation", again))
    return result.agrees


def _reevaluated_text(trial: int, part: str, again: SecondResult) -> str:
    """One line: the result of an evaluation here, that of the journal, and whether they agree."""
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
        say_line(f"not kept for `report`: {lost}")
