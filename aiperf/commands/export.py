"""`export`: a run in the form of another program.

Each form says what its own readers expect and nothing that they would misread: units in names, the origin of
a run that was not measured in every line. docs/beyond.md compares the figures with those of the other
programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from aiperf.commands.arguments import PATH, only_with, output_option, run_or_package_argument
from aiperf.commands.messages import say_line
from aiperf.commands.optional_libraries import extra
from aiperf.commands.site_options import node_price
from aiperf.commands.system_description import given_system
from aiperf.commands.user_files import opened, write_file, writing
from aiperf.errors import ConfigError
from aiperf.journal.run_files import RunFiles
from analysis.exports.mllog import BENCHMARKS, DIVISIONS, STATUSES, MlperfEntry, mlperf_text
from analysis.readings.judgement import Judged, examine, glance

INFERENCE = "mlperf-inference"
"""The format that is a folder of submissions, of the results of `infer`."""
KINDS = ("csv", "mllog", "openmetrics", "dawnbench", INFERENCE)
"""Formats, by the names of their options."""
FOR_MLPERF = "For --mlperf and --mlperf-inference"
"""Beginning of the help of options that both forms of MLPerf have."""


@click.command()
@run_or_package_argument
@output_option("Write to this file instead; for --dawnbench and --mlperf-inference: to this folder.")
@click.option("--csv", is_flag=True, help="Table of all trials.")
@click.option("--mllog", is_flag=True, help="MLPerf log lines (:::MLLOG).")
@click.option("--openmetrics", is_flag=True, help="OpenMetrics text, for Prometheus.")
@click.option("--dawnbench", is_flag=True, help="DAWNBench entry: JSON and TSV.")
@click.option(
    "--mlperf-inference",
    is_flag=True,
    help="MLPerf Inference submission folder, from the results of `infer`.",
)
@click.option("--author", default="", show_default=False, help="For --dawnbench: author of the entry.")
@click.option("--email", default="", show_default=False, help="For --dawnbench: email address of the author.")
@click.option(
    "--price",
    metavar="AMOUNT/node-hour",
    help="For --dawnbench: price for costPerHour, such as 12.5USD/node-hour.",
)
@click.option("--site", type=PATH, help="For --dawnbench: site file with the price.")
@click.option(
    "--mlperf",
    "benchmark",
    type=click.Choice(BENCHMARKS),
    help="For --mllog: write the log for the checker of this MLPerf Training benchmark.",
)
@click.option("--division", type=click.Choice(DIVISIONS), default="open", help=f"{FOR_MLPERF}: division.")
@click.option("--organization", default="", show_default=False, help=f"{FOR_MLPERF}: name of the submitter.")
@click.option("--platform", default="", show_default=False, help=f"{FOR_MLPERF}: name of the machine.")
@click.option("--status", type=click.Choice(STATUSES), help=f"{FOR_MLPERF}: status of the machine.")
@click.option(
    "--system", type=PATH, help="For --mlperf-inference: JSON file with fields of the system description."
)
def export(
    path: Path,
    output: Path | None,
    author: str,
    email: str,
    price: str | None,
    site: Path | None,
    benchmark: str | None,
    division: str,
    organization: str,
    platform: str,
    status: str | None,
    system: Path | None,
    **formats: bool,
) -> None:
    """Print a run in another format: --csv, --mllog, --openmetrics, --dawnbench or --mlperf-inference.

    Runs that were not measured are marked in every line; as an entry of MLPerf or DAWNBench they are
    refused. --mllog --mlperf resnet writes a log that the checker of MLPerf Training accepts,
    --mlperf-inference a folder that the submission checker of MLPerf Inference accepts.
    """
    kind = _one_of(formats)
    only_with("--dawnbench", kind == "dawnbench", "author", "email", "price", "site")
    only_with("--mllog", kind == "mllog", "benchmark")
    only_with("--mlperf-inference", kind == INFERENCE, "system")
    of_mlperf = benchmark is not None or kind == INFERENCE
    only_with("--mlperf or --mlperf-inference", of_mlperf, "division", "organization", "platform", "status")
    entry = None
    if of_mlperf:
        entry = MlperfEntry(benchmark or BENCHMARKS[0], division, organization, platform, status or "")
    with opened(path) as files:
        judged = _judged(files, is_entry=of_mlperf or kind == "dawnbench")
        if kind == "dawnbench":
            click.echo("\n".join(map(str, _dawnbench(judged, output, author, email, price, site))))
            return
        if kind == INFERENCE and entry is not None:
            click.echo(str(_inference(judged, entry, output, system)))
            return
        text = _text(kind, judged) if entry is None else mlperf_text(judged, entry)
    if output is None:
        click.echo(text, nl=False)
    else:
        click.echo(str(write_file(output, text)))


def _judged(files: RunFiles, is_entry: bool) -> Judged:
    """An entry of another list asks every rule here and now, however long the run is: what was kept beside
    its journal may be by anybody. Progress is printed on standard error."""
    return examine(files, say_line) if is_entry else glance(files)


def _one_of(formats: Mapping[str, bool]) -> str:
    """The format that is chosen. Raises UsageError for none and for several."""
    given = [kind for kind in KINDS if formats[kind.replace("-", "_")]]
    if len(given) == 1:
        return given[0]
    *first, last = (f"--{kind}" for kind in given or KINDS)
    several, none = f"{', '.join(first)} and {last} are given; choose one", f"{', '.join(first)} or {last}"
    text = several if given else f"choose a format: {none}"
    raise click.UsageError(text, click.get_current_context())


def _text(kind: str, judged: Judged) -> str:
    """The run in a format that is one text. Raises MissingExtra for OpenMetrics, which needs a library."""
    if kind == "csv":
        from analysis.exports.trial_table import csv_text

        return csv_text(judged)
    if kind == "mllog":
        from analysis.exports.mllog import mllog_text

        return mllog_text(judged)
    with extra("report"):
        from analysis.exports.openmetrics import openmetrics_text
    return openmetrics_text(judged)


def _dawnbench(
    judged: Judged, output: Path | None, author: str, email: str, price: str | None, site: Path | None
) -> list[Path]:
    """Writes the two files of a DAWNBench entry and returns their paths. Raises ConfigError if the author or
    the folder is missing, which DAWNBench requires."""
    from analysis.exports.dawnbench import dawnbench, write_entry

    if output is None or not author or not email:
        raise ConfigError("a DAWNBench entry needs --author, --email and -o FOLDER")
    entry = dawnbench(judged, author, email, node_price(price, site))
    with writing(output):
        return write_entry(entry, output)


def _inference(judged: Judged, entry: MlperfEntry, output: Path | None, system: Path | None) -> Path:
    """Writes a submission folder of MLPerf Inference and returns its path. Raises ConfigError without a
    folder and a system description."""
    with extra("report"):
        from analysis.submissions.inference_folder import MORE_FIELDS, inference_files, write_folder
        from analysis.submissions.system import fields
    if output is None or system is None:
        raise ConfigError("an MLPerf Inference submission needs --system FILE and -o FOLDER")
    files = inference_files(judged, entry, given_system(system, (*fields(), *MORE_FIELDS)))
    with writing(output):
        write_folder(files, output)
    return output
