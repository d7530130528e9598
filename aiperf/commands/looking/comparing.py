"""Sub-commands that look at several runs at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from aiperf.commands.extras import extra
from aiperf.commands.looking.opening import opened
from aiperf.commands.options import PATH, output_option, writing
from aiperf.files import RunFiles
from aiperf.wording import plain


@click.command()
@click.argument("directories", metavar="RUN...", nargs=-1, required=True, type=PATH)
@output_option("Folder for scaling.html, .csv, .md, .svg and .png.", "scaling")
@click.option("--published", "beside", is_flag=True, help="Also draw the published points of AIPerf 1.0.")
def scaling(directories: tuple[Path, ...], output: Path, beside: bool) -> None:
    """Write the weak-scaling table and figure of runs of different sizes.

    Efficiency is relative to the smallest run. Runs with different configuration, data, code or devices are
    refused, and the difference is shown; only --random-seed, the data folder and the number of loader
    processes may differ.
    """
    write_table(directories, output, published=beside)


@click.command()
@click.argument("first", metavar="RUN|PACKAGE", type=PATH)
@click.argument("second", metavar="RUN|PACKAGE", type=PATH)
@output_option("Also write a page to this file.")
def compare(first: Path, second: Path, output: Path | None) -> None:
    """Show the differences between two runs: scores, time, configuration, machine, software."""
    with extra("report"):
        from analysis.comparing.comparison import compare as compared
        from analysis.comparing.comparison import comparison_text
        from analysis.readings.judged import glance
    with opened(first) as one, opened(second) as other:
        found = compared(glance(one), glance(other))
    click.echo(comparison_text(found), nl=False)
    if output is not None:
        with extra("report"):
            from analysis.pages.study import comparison_html
        with writing(output):
            output.write_text(comparison_html(found), encoding="utf-8")


def refuse_no_table() -> None:
    """Raises MissingExtra where the table of a study could not be made."""
    with extra("report"):
        import analysis.pages.study  # noqa: F401


def write_table(directories: Sequence[Path], output: Path, published: bool, tolerant: bool = False) -> int:
    """Writes the study into `output` and prints its table; with the published points beside, or not.
    A tolerant one leaves out runs with nothing to compare, and says so. Returns how many it left out."""
    with extra("report"):
        from analysis.comparing import scaling as study
        from analysis.comparing.published import published as by_others
        from analysis.pages.study import write_scaling
        from analysis.readings.judged import glance
    runs = [glance(RunFiles(directory)) for directory in directories]
    reasons = [study.nothing_to_compare(run) if tolerant else "" for run in runs]
    for run, why in zip(runs, reasons):
        if why:
            text = f"aiperf-hpc: {run.files.directory}: {why}; left out of the scaling table"
            click.echo(plain(text), err=True)
    runs = [run for run, why in zip(runs, reasons) if not why]
    if runs:
        found = study.scaling(runs)
        written = write_scaling(found, runs, by_others(runs[0]) if published else [], output)
        click.echo(study.markdown_text(found))
        click.echo("\n".join(map(str, written)))
    return len(directories) - len(runs)
