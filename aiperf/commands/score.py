"""`score`: the result of a run."""

from __future__ import annotations

import json
from pathlib import Path

import click

from aiperf.commands.arguments import run_or_package_argument
from aiperf.commands.user_files import opened
from aiperf.score.score import record_of
from analysis.exports.summary import summary_text
from analysis.readings.judgement import glance
from analysis.readings.run_tables import engines
from nas.record import encode

NOT_VALIDATED = 2
"""Exit code for a run whose operations were not recounted, so that its verdict is not certain."""


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
            from analysis.readings.fabric import fabric_record

            doubts = {} if judged.valid else {**answered(judged), **unmeasured(judged.replay)}
            record = {**doubts, **record_of(judged.score), "engines": encode(engines(judged.replay))}
            record |= fabric_record(judged.replay)
            text = json.dumps(record)
        else:
            text = summary_text(judged)
        # The folder of an unpacked package is removed afterwards, so the package is named instead.
        click.echo(text.replace(str(files.directory), str(path)))
        is_unsure = judged.verdict.valid and not judged.validated
        return NOT_VALIDATED if is_unsure else judged.verdict.answer.exit_code
