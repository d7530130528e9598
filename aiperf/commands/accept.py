"""`accept`: whether a machine meets the criteria of its site.

A shell script reads the exit code, a person the lines, a continuous-integration server the files: all are
made of the same judgements. docs/acceptance.md describes the procedure.
"""

from __future__ import annotations

from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aiperf import toml
from aiperf.commands.arguments import PATH
from aiperf.commands.messages import say, say_line
from aiperf.commands.optional_libraries import extra
from aiperf.commands.site_options import machine_names, site_option
from aiperf.commands.user_files import opened, reading, write_file
from aiperf.errors import AiperfError
from aiperf.journal.run_files import RunFiles, run_directories
from nas.bounded import read_text

if TYPE_CHECKING:
    from analysis.readings.judgement import Judged

PASSED, FAILED, REFUSED = 0, 1, 2
"""Exit codes. A run that is not VALID is refused, because it says nothing about the machine."""


@click.command()
@click.argument("paths", metavar="RUN|PACKAGE...", nargs=-1, required=True, type=PATH)
@click.option(
    "--criteria",
    required=True,
    type=PATH,
    help="TOML file with the criteria of the site; see docs/acceptance.md.",
)
@click.option(
    "--history",
    type=PATH,
    metavar="DIRECTORY",
    help="Directory of earlier runs, for the criteria max_drop and same_environment.",
)
@click.option(
    "--sheet",
    "sheet_file",
    type=PATH,
    help="Also write an acceptance sheet to this file: one HTML page to print and sign.",
)
@site_option("the sheet's name and owner of the machine")
@click.option("--json", "json_file", type=PATH, help="Also write the result to this file, as JSON.")
@click.option("--junit", "junit_file", type=PATH, help="Also write the result to this file, as JUnit XML.")
def accept(
    paths: tuple[Path, ...],
    criteria: Path,
    history: Path | None,
    sheet_file: Path | None,
    site: Path | None,
    json_file: Path | None,
    junit_file: Path | None,
) -> int:
    """Accept a machine by its runs: pass or fail for each site criterion, run and node.

    All operations are recounted. Exit codes: 0 accepted; 1 not accepted; 2 refused: a run is not VALID, or
    the runs differ in configuration, code, devices or size.
    """
    with extra("report"):
        from analysis.comparing import acceptance, acceptance_text
        from analysis.pages.acceptance_page import acceptance_html
        from analysis.readings.judgement import examine
    with ExitStack() as stack:
        try:
            with reading(criteria, "give a TOML file with criteria"):
                text = read_text(criteria, toml.LARGEST_BYTES)
            demands = acceptance.read_criteria(text, str(criteria))
            # Recounted here, because the supplier of the machine may have made the runs.
            runs = [examine(stack.enter_context(opened(path))) for path in paths]
            found = acceptance.accept(demands, runs, _earlier(history, demands.looks_back))
            names = machine_names(paths[0], runs[0], site)
        except AiperfError as error:
            # Not 1, which is what a script takes for a machine that failed.
            say(str(error))
            return REFUSED
        sheet = acceptance_text.acceptance_sheet(
            found, runs, datetime.now(timezone.utc), names, criteria.name
        )
    # Printed first: a file that cannot be written then costs no answer.
    click.echo(acceptance_text.acceptance_text(found), nl=False)
    forms = (
        (sheet_file, acceptance_html),
        (json_file, acceptance_text.acceptance_json),
        (junit_file, acceptance_text.acceptance_junit),
    )
    for path, text_of in forms:
        if path is not None:
            write_file(path, text_of(sheet))
    return PASSED if found.passed else FAILED


def _earlier(history: Path | None, is_needed: bool) -> list[Judged]:
    """The earlier runs, without those that cannot be read or may not be used, which are reported. Raises
    AiperfError if a history is given and no criterion needs it."""
    from analysis.readings.judgement import glance

    if history is None:
        return []
    if not is_needed:
        raise AiperfError("--history: the criteria ask for neither max_drop nor same_environment")
    found = []
    for directory in run_directories(history):
        try:
            # A history may have hundreds of runs: none is recounted, one that never was is left out.
            judged = glance(RunFiles(directory))
            if judged.verdict.valid and not judged.validated:
                raise AiperfError(f"{directory} is NOT VALIDATED here; run `aiperf-hpc validate` on it")
            found.append(judged)
        except AiperfError as error:
            say_line(f"left out of the history: {error}")
    return found
