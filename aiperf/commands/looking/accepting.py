"""The sub-command that accepts a machine, or says what it lacks."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import click

from aiperf import toml
from aiperf.commands.extras import extra
from aiperf.commands.looking.reporting import opened
from aiperf.commands.options import PATH, writing
from aiperf.errors import AiperfError
from aiperf.wording import plain
from nas.bounded import read_text

PASSED, FAILED, REFUSED = 0, 1, 2


@click.command()
@click.argument("paths", metavar="RUN|PACKAGE...", nargs=-1, required=True, type=PATH)
@click.option(
    "--criteria",
    required=True,
    type=PATH,
    help="TOML file with the criteria of the site; see docs/acceptance.md.",
)
@click.option("--json", "json_file", type=PATH, help="Also write the result to this file, as JSON.")
@click.option("--junit", "junit_file", type=PATH, help="Also write the result to this file, as JUnit XML.")
def accept(paths: tuple[Path, ...], criteria: Path, json_file: Path | None, junit_file: Path | None) -> int:
    """Accept a machine by its runs: pass or fail for each site criterion, run and node.

    All operations are recounted. Exit codes: 0 accepted; 1 not accepted; 2 refused: a run is not VALID, or
    the runs differ in configuration, code, devices or size.
    """
    with extra("report"):
        from analysis.comparing import acceptance
        from analysis.readings.judged import examine
    with ExitStack() as stack:
        try:
            asked = acceptance.read_criteria(_text(criteria), str(criteria))
            runs = [examine(stack.enter_context(opened(path))) for path in paths]
            found = acceptance.accept(asked, runs)
        except AiperfError as error:
            click.echo(plain(f"aiperf-hpc: {error}"), err=True)
            return REFUSED
    click.echo(acceptance.acceptance_text(found), nl=False)
    for path, text_of in ((json_file, acceptance.acceptance_json), (junit_file, acceptance.acceptance_junit)):
        if path is not None:
            with writing(path):
                path.write_text(text_of(found), encoding="utf-8")
    return PASSED if found.passed else FAILED


def _text(path: Path) -> str:
    try:
        return read_text(path, toml.LARGEST_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not valid UTF-8"
        raise AiperfError(f"{path}: {why}; give a TOML file of criteria") from None
