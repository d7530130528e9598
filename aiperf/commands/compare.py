"""`compare`, `spread` and `scaling`: the differences between runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from aiperf.commands.arguments import PATH, output_option
from aiperf.commands.messages import say
from aiperf.commands.optional_libraries import extra
from aiperf.commands.user_files import opened, reading, write_file
from aiperf.journal.run_files import RunFiles, run_directories
from nas.bounded import read_bytes


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
@click.option(
    "--spread",
    "spread_file",
    type=PATH,
    help="Say whether the difference is larger than this spread: a file that `spread --json` printed.",
)
@output_option("Also write a page to this file.")
def compare(first: Path, second: Path, spread_file: Path | None, output: Path | None) -> None:
    """Show the differences between two runs: scores, time, configuration, machine, software."""
    with extra("report"):
        from analysis.comparing.comparison import compare as compared
        from analysis.comparing.comparison import comparison_text
        from analysis.comparing.repeatability_text import read_spread
        from analysis.readings.judgement import glance
    known = None
    if spread_file is not None:
        with reading(spread_file, "`aiperf-hpc spread RUN... --json` prints such a file"):
            known = read_spread(read_bytes(spread_file), str(spread_file))
    with opened(first) as one, opened(second) as other:
        comparison = compared(glance(one), glance(other), known)
    click.echo(comparison_text(comparison), nl=False)
    if output is not None:
        with extra("report"):
            from analysis.pages.comparisons import comparison_html
        write_file(output, comparison_html(comparison))


@click.command()
@click.argument("paths", metavar="RUN|PACKAGE|DIRECTORY...", nargs=-1, required=True, type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with all digits, for `compare --spread`.")
def spread(paths: tuple[Path, ...], as_json: bool) -> None:
    """Show how far runs of one configuration differ, and by which cause: seed, choices before the span.

    A DIRECTORY stands for all runs in it, as `run --repeats` leaves them. Only the random seed, the data
    folder, the number of loader processes and what a run chooses itself may differ.
    """
    click.echo(spread_of(paths, as_json), nl=False)


def spread_of(paths: Sequence[Path], as_json: bool = False) -> str:
    """The spread as text. Incomplete runs in a directory are left out, and reported. Raises MixedError. A run
    that is named itself is never left out: if it does not fit, that is the error."""
    with extra("report"):
        from analysis.comparing.repeatability import spread as spread_over
        from analysis.comparing.repeatability import unfit
        from analysis.comparing.repeatability_text import spread_json, spread_text
        from analysis.readings.judgement import glance
    runs = []
    with ExitStack() as stack:
        for path in paths:
            is_run = not path.is_dir() or os.path.lexists(RunFiles(path).journal)
            for each in [path] if is_run else run_directories(path):
                run = glance(stack.enter_context(opened(each)))
                if is_run or not (why := unfit(run)):
                    runs.append(run)
                else:
                    say(f"{each} is {why}; left out of the spread")
        found = spread_over(runs)
    return spread_json(found) if as_json else spread_text(found)


def refuse_no_table() -> None:
    """Raises MissingExtra if the table of a study cannot be made."""
    with extra("report"):
        import analysis.pages.comparisons  # noqa: F401


def write_table(directories: Sequence[Path], output: Path, published: bool, tolerant: bool = False) -> int:
    """Writes the study into `output` and prints its table. `published`: also draw the published points.
    `tolerant`: leave out runs that have nothing to compare, and report them. Returns the number of runs that
    were left out."""
    with extra("report"):
        from analysis.comparing import scaling as study
        from analysis.comparing.comparability import nothing_to_compare
        from analysis.comparing.published import published as by_others
        from analysis.pages.comparisons import write_scaling
        from analysis.readings.judgement import glance
    runs = []
    for directory in directories:
        run = glance(RunFiles(directory))
        if tolerant and (why := nothing_to_compare(run)):
            say(f"{directory}: {why}; left out of the scaling table")
        else:
            runs.append(run)
    if runs:
        found = study.scaling(runs)
        written = write_scaling(found, runs, by_others(runs[0]) if published else [], output)
        click.echo(study.markdown_text(found))
        click.echo("\n".join(map(str, written)))
    return len(directories) - len(runs)
