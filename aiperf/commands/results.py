"""Sub-commands that read a journal: they start no training and change nothing."""

from __future__ import annotations

import json
from pathlib import Path

import click

from aiperf.commands.extras import refuse_no_run
from aiperf.commands.options import PATH, device_option, only_with, run_argument
from aiperf.commands.submitting import validate_package
from aiperf.commands.watching import watch_run
from aiperf.errors import AiperfError
from aiperf.files import RunFiles
from aiperf.journal.file import read_journal
from aiperf.journal.replay import Replay, replay
from aiperf.rules.verdict import judge
from aiperf.score.lineage import recount
from aiperf.score.score import score as score_of
from aiperf.wording import plain
from analysis.exports.summary import findings_text, status_text, summary_text
from analysis.readings import validation
from analysis.readings.judged import Judged, examine
from nas.record import encode

INVALID, NOT_JUDGED = 1, 2


def result_text(run: Replay, files: RunFiles) -> str:
    """Everything a person wants to know at the end of a run."""
    return summary_text(run, score_of(run, recount(run).counts), judge(run, files), files)


@click.command()
@run_argument
@click.option("--json", "as_json", is_flag=True, help="Print JSON, every figure in full.")
def score(directory: Path, as_json: bool) -> None:
    """Compute the result again from the journal alone, to the last digit."""
    files = RunFiles(directory)
    run = replay(read_journal(files.journal))
    if as_json:
        click.echo(json.dumps(encode(score_of(run, recount(run).counts))))
    else:
        click.echo(result_text(run, files))


@click.command()
@run_argument
@click.option("--watch", is_flag=True, help="Go on showing it until the run has ended or Ctrl-C is pressed.")
def status(directory: Path, watch: bool) -> None:
    """Show where a run stands, while it goes on or afterwards."""
    files = RunFiles(directory)
    if watch:
        watch_run(files)
        return
    click.echo(status_text(replay(read_journal(files.journal)), files))


@click.command()
@click.argument("path", metavar="RUN|PACKAGE", type=PATH)
@click.option("--reevaluate", "again", is_flag=True, help="Evaluate the best network again from its weights.")
@click.option("--data", default="", help="For --reevaluate: folder of the images, if not the run's.")
@device_option
def validate(path: Path, again: bool, data: str, device: str) -> int:
    """Check every rule against the journal; operations are counted again, nothing recorded is believed.

    Of a package (*.tar.gz) its checksums, results and signature are checked as well. What was found on a
    run is kept beside its journal, for `report`. Exit code 0 for VALID of any class, 1 for INVALID, 2 where
    nothing could be judged.
    """
    only_with("--reevaluate", again, "data", "device")
    try:
        return _validate(path, again, data, device)
    except AiperfError as error:
        click.echo(plain(f"aiperf-hpc: {error}"), err=True)
        return NOT_JUDGED


def _validate(path: Path, again: bool, data: str, device: str) -> int:
    if path.is_file():
        if again:
            raise click.UsageError("--reevaluate needs the directory of a run: a package holds no weights.")
        return validate_package(path)
    if not path.is_dir():
        raise AiperfError(f"there is no {path}; give the directory of a run, or a package")
    if again:
        refuse_no_run()
    files = RunFiles(path)
    judged = examine(files)
    run, verdict = judged.replay, judged.verdict
    if verdict.valid and all(leg.released is None for leg in run.legs):
        raise AiperfError(f"{files.journal}: its clock never started, so nothing can be judged; see logs/")
    click.echo(findings_text(verdict))
    _keep(judged)
    valid = verdict.valid
    if again:
        from aiperf.training.reevaluation import reevaluate  # torch, which judging does without

        seen = reevaluate(run, files, device, data)
        for part, answers in (("test", seen.test), ("validation", seen.validation)):
            click.echo(
                f"reevaluated: trial {seen.trial} is right on {answers.correct} of {answers.of} {part} "
                f"images here, {answers.recorded} in the journal: {'agrees' if answers.agree else 'DIFFERS'}"
            )
        valid = valid and seen.agrees
    return 0 if valid else INVALID


def _keep(judged: Judged) -> None:
    """A run of somebody else's may lie where nothing can be written: it is validated all the same."""
    try:
        validation.save(judged.files, judged.replay, judged.verdict, judged.layers or {})
    except AiperfError as error:
        click.echo(f"not kept for `report`: {error}", err=True)
