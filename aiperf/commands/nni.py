"""A run under NNI: its description, and the processes that NNI starts.

NNI starts the master as its tuner and each trial as a process of its own; the journal is that of any other
run, so all views read it: docs/search.md.
"""

from __future__ import annotations

from pathlib import Path

import click

from aiperf.commands.arguments import PATH, Whole, device_option
from aiperf.commands.command_groups import CommandGroup
from aiperf.commands.optional_libraries import extra, refuse_no_run
from aiperf.commands.run_options import RunRequest, config_options
from aiperf.journal.run_files import RUNS, RunFiles
from aiperf.ranks.rank_options import RankOptions
from aiperf.run.run import begin, new_run_id
from analysis.exports.summary import summary_text
from analysis.readings.judgement import glance_at


@click.group(cls=CommandGroup)
def nni() -> None:
    """Run under NNI 3.0: its manager starts the trials and its web page shows them.

    aiperf-hpc nni config > config.yml; nnictl create --config config.yml. Needs the extras run and nni.
    """


concurrency_option = click.option(
    "--concurrency", type=Whole(1), default=1, help="Number of concurrent trials."
)


@nni.command()
@config_options
@click.option("--directory", type=PATH, help="Run directory; default: as for `run`.")
@device_option
@concurrency_option
def config(request: RunRequest, directory: Path | None, device: str, concurrency: int) -> int:
    """Print the file for `nnictl create`."""
    from aiperf.on_nni.description import description

    settings = request.config()
    files = RunFiles(directory or RUNS / new_run_id(settings))
    words = [*request.words(), "--device", device, "--concurrency", str(concurrency)]
    click.echo(description(settings, words, files.directory, concurrency), nl=False)
    return 0


@nni.command(hidden=True)
@config_options
@click.option("--directory", type=PATH, required=True)
@device_option
@concurrency_option
def master(request: RunRequest, directory: Path, device: str, concurrency: int) -> int:
    """The master of a run; NNI's tuner starts it."""
    from aiperf.on_nni.nni_world import NniRanks

    refuse_no_run()
    files = RunFiles(directory)
    ranks = NniRanks(RankOptions(device), concurrency=concurrency)
    replay = begin(request.config(), files, ranks, lambda replay, t: None)
    judged = glance_at(files, replay)
    click.echo(summary_text(judged))
    return judged.verdict.answer.exit_code


@nni.command(hidden=True)
def trial() -> int:
    """One trial; NNI's training service starts it."""
    refuse_no_run()
    from aiperf.on_nni.trial_process import train_one

    with extra("nni"):
        return train_one()
