"""`report`: a run as a page, as figures or as JSON.

The page needs no network and no server, so that it can be mailed and kept: docs/results.md.
"""

from __future__ import annotations

import gc
from contextlib import ExitStack
from pathlib import Path

import click

from aiperf.commands.arguments import PATH, only_with, output_option, run_or_package_argument
from aiperf.commands.messages import say_next
from aiperf.commands.optional_libraries import extra
from aiperf.commands.site_options import machine_names, node_price, price_option, site_option
from aiperf.commands.user_files import opened, write_file
from aiperf.journal.run_files import RunFiles
from analysis.readings.judgement import Judged, glance


@click.command()
@run_or_package_argument
@output_option("Write to this file instead.")
@click.option("--figures", is_flag=True, help="Also write each figure as PNG and SVG into RUN/figures.")
@click.option(
    "--json", "as_json", is_flag=True, help="Write RUN/result.json instead, in the published schema."
)
@price_option
@site_option("its name, its owner and its price")
@click.option(
    "--beside",
    "others",
    metavar="RUN|PACKAGE",
    multiple=True,
    type=PATH,
    help="Also show this run of another machine as a bar; may be repeated.",
)
def report(
    path: Path,
    output: Path | None,
    figures: bool,
    as_json: bool,
    price_text: str | None,
    site: Path | None,
    others: tuple[Path, ...],
) -> None:
    """Write RUN/report.html: one self-contained file with all figures, tables and findings.

    For a package NAME.tar.gz, NAME.report.html is written next to it. Operations are recounted in runs of up
    to 500 trials; in longer runs they are taken from the journal, and the page says whether `validate` has
    passed.
    """
    with extra("report"):
        from analysis.exports.result import result
        from analysis.pages.report import report_html, write_figures
        from analysis.pages.report_head import About
        from analysis.submissions.canonical import canonical
    only_with("the page, not for --json", not as_json, "price_text", "site", "others")
    with ExitStack() as stack:
        files = stack.enter_context(opened(path))
        judged = glance(files)
        gc.freeze()  # what was read stays until the end: the collector of cycles need not look through it
        if as_json:
            with extra("report"):
                from analysis.submissions.schema import check
            content = result(judged)
            check("result-1", content, "the result")
            written = [write_file(output or beside(path, files, files.result.name), canonical(content))]
        else:
            about = About(
                *machine_names(path, judged, site),
                price=node_price(price_text, site),
                others=[_other(one, stack.enter_context(opened(one))) for one in others],
            )
            page = report_html(judged, about)
            written = [write_file(output or beside(path, files, files.report.name), page)]
        if figures:
            written += write_figures(judged, beside(path, files, files.figures.name))
    click.echo("\n".join(map(str, written)))
    if not as_json:
        say_next("validate", path)


def _other(path: Path, files: RunFiles) -> tuple[str, Judged]:
    """The machine's name and the findings of another run, to be compared with. The site file here is not
    used, because it may belong to another machine."""
    judged = glance(files)
    return "" if files.directory == path else machine_names(path, judged, None)[0], judged


def beside(path: Path, files: RunFiles, name: str) -> Path:
    """Path for a file that is made from a run: in its directory, or next to its package."""
    if files.directory == path:
        return path / name
    package = path if path.is_file() else path.parent
    run = "" if path.is_file() else f".{path.name}"
    return package.with_name(f"{package.name.removesuffix('.tar.gz')}{run}.{name}")
