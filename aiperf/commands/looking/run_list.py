"""The sub-command that lists runs."""

from __future__ import annotations

from pathlib import Path

import click

from aiperf.commands.extras import extra
from aiperf.commands.options import PATH, say_next
from aiperf.files import RUNS, RunFiles, run_directories
from aiperf.wording import plain


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
    found = [Listed.of(RunFiles(each)) for each in runs]
    for each in found:
        if each.problem:
            click.echo(plain(f"aiperf-hpc: {each.problem}"), err=True)
    if as_json:
        click.echo(runs_json(found), nl=False)
    elif found:
        click.echo(runs_text(found))
        say_next("report", runs[-1])
    else:
        click.echo(f"no run in {directory}; `aiperf-hpc run` makes one")
    return int(any(each.problem for each in found))
