"""The sub-command that accepts a machine, or says what it lacks."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aiperf import toml
from aiperf.commands.extras import extra
from aiperf.commands.looking.site_options import machine_names, site_option
from aiperf.commands.options import PATH, opened, writing
from aiperf.errors import AiperfError
from aiperf.files import RunFiles, run_directories
from aiperf.os_error import unreadable
from aiperf.wording import plain
from nas.bounded import read_text

if TYPE_CHECKING:
    from analysis.readings.judgement import Judged

PASSED, FAILED, REFUSED = 0, 1, 2


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
            asked = acceptance.read_criteria(_text(criteria), str(criteria))
            runs = [examine(stack.enter_context(opened(path))) for path in paths]
            found = acceptance.accept(asked, runs, _earlier(history, asked.looks_back))
            names = machine_names(paths[0], runs[0], site)
        except AiperfError as error:
            click.echo(plain(f"aiperf-hpc: {error}"), err=True)
            return REFUSED
        sheet = acceptance_text.acceptance_sheet(
            found, runs, datetime.now(timezone.utc), names, criteria.name
        )
    click.echo(acceptance_text.acceptance_text(found), nl=False)
    forms = (
        (sheet_file, acceptance_html),
        (json_file, acceptance_text.acceptance_json),
        (junit_file, acceptance_text.acceptance_junit),
    )
    for path, text_of in forms:
        if path is not None:
            with writing(path):
                path.write_text(text_of(sheet), encoding="utf-8")
    return PASSED if found.passed else FAILED


def _earlier(history: Path | None, is_asked: bool) -> list[Judged]:
    from analysis.readings.judgement import glance

    if history is None:
        return []
    if not is_asked:
        raise AiperfError("--history: the criteria ask for neither max_drop nor same_environment")
    found = []
    for directory in run_directories(history):
        try:
            judged = glance(RunFiles(directory))
            if judged.verdict.valid and not judged.validated:
                raise AiperfError(f"{directory} is NOT VALIDATED here; run `aiperf-hpc validate` on it")
            found.append(judged)
        except AiperfError as error:
            click.echo(plain(f"left out of the history: {error}"), err=True)
    return found


def _text(path: Path) -> str:
    try:
        return read_text(path, toml.LARGEST_BYTES)
    except OSError as error:
        raise AiperfError(unreadable(error, path, "give a TOML file with criteria")) from None
