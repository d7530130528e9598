"""`power`: what the site's own meters measured during a run."""

from __future__ import annotations

from pathlib import Path

import click

from aiperf.commands.arguments import PATH, run_argument
from aiperf.commands.messages import say_next
from aiperf.commands.optional_libraries import extra
from aiperf.commands.user_files import write_file, writing
from aiperf.errors import AiperfError
from aiperf.journal.mark import refuse_marked
from aiperf.journal.run_files import RunFiles


@click.command()
@run_argument
@click.argument("file", type=PATH)
@click.option(
    "--level",
    type=click.Choice(["L1", "L2"]),
    required=True,
    help="What FILE measures. L1: the nodes of the run; L2: nodes, network and storage together.",
)
def power(directory: Path, file: Path, level: str) -> None:
    """Add the power that the site's own meters measured during a run, from a CSV file.

    Its first line names the columns: time (UTC, ISO 8601 or seconds since 1970), watts or joules (a counter),
    and node if there are several meters. The samples of the span are kept next to the journal, where score,
    report, compare, accept, package and rank find them. A file that does not cover the span is refused.
    """
    with extra("report"):
        from analysis.readings.devices import energy_text
        from analysis.readings.energy import Level, energy_at, kept_power, read_energy
        from analysis.readings.judgement import glance
    run = RunFiles(directory)
    judged = glance(run)
    refuse_marked(judged.replay.opened.origin, directory, "have energy")
    measures = Level[level]
    energy = energy_at(measures, read_energy(run, judged.replay, given=(measures, file)))
    if energy.joules is None:
        raise AiperfError(energy.missing if str(file) in energy.missing else f"{file}: {energy.missing}")
    path = run.power(level)
    with writing(path):
        path.parent.mkdir(exist_ok=True)
    write_file(path, kept_power(run, judged.replay, measures, file))
    click.echo(f"{path}: {energy_text(energy, judged.score)}")
    say_next("score", directory)
