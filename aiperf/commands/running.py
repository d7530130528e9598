"""Sub-commands that measure: they start processes and write a journal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from aiperf.commands.asked import Asked
from aiperf.commands.extras import refuse_no_run
from aiperf.commands.options import PATH, Number, is_typed, only_with, run_argument
from aiperf.commands.run_options import config_options, pretend_option, rank_options
from aiperf.config import preset_names, preset_text
from aiperf.files import RunFiles
from aiperf.pretending.assumptions import assumed
from aiperf.ranks.wanted import Wanted


@click.command()
@click.argument("name", required=False)
def preset(name: str | None) -> None:
    """Print a preset, to edit and use with `run --preset FILE.toml`. Without a name: list the presets."""
    if name:
        click.echo(preset_text(name), nl=False)
        return
    names = preset_names()
    for each in names:
        about = preset_text(each).partition("\n")[0].removeprefix("# ")
        click.echo(f"{each:<{max(map(len, names))}}  {about}")


@click.command()
@config_options
@click.option(
    "--like",
    metavar="RUN|PACKAGE",
    type=PATH,
    help="Take all settings from that run instead of a preset; options on the command line override them.",
)
@click.option("--directory", type=PATH, help="Run directory; default: runs/<time>-<preset>.")
@click.option("--resume", "again", is_flag=True, help="Continue the run in --directory if there is one.")
@rank_options
@pretend_option
@click.option("--dry-run", is_flag=True, help="Show the plan and the estimated time, then exit.")
@click.option(
    "--examples-per-second",
    type=Number(1e-6, 1e15),
    help="For --dry-run: training rate of the seed on another machine, in images or windows per second; "
    "default: measured on this one.",
)
def run(
    asked: Asked,
    like: Path | None,
    directory: Path | None,
    again: bool,
    wanted: Wanted,
    pretend: str | None,
    dry_run: bool,
    examples_per_second: float | None,
) -> int:
    """Benchmark this machine: train growing networks on real images or text until time is up.

    By default it uses all devices of the machine; on several nodes, start it with mpiexec or srun. Settings
    without an option come from the preset; in a batch job, the timed span is fitted to the job's time limit.
    """

    only_with("--dry-run", dry_run, "examples_per_second")
    if like is not None and is_typed("name"):
        raise click.UsageError("give --preset or --like, not both", click.get_current_context())
    if again and directory is None:
        raise click.UsageError("--resume needs the --directory of the run", click.get_current_context())
    refuse_no_run()
    from aiperf.commands.legs import lead
    from aiperf.ranks.ranks import across

    return across(
        _pretending(wanted, pretend),
        lambda ranks: lead(ranks, asked, like, directory, again, dry_run, examples_per_second),
    )


@click.command()
@run_argument
@rank_options
@pretend_option
def resume(directory: Path, wanted: Wanted, pretend: str | None) -> int:
    """Continue a run that was stopped or killed. At most the trials in flight are lost.

    The number of ranks may differ from before. If the run is complete, its result is shown.
    """
    refuse_no_run()
    from aiperf.commands.legs import go_on
    from aiperf.ranks.ranks import across

    return across(_pretending(wanted, pretend), lambda ranks: go_on(RunFiles(directory), ranks))


def _pretending(wanted: Wanted, pretend: str | None) -> Wanted:
    return replace(wanted, pretend=assumed(pretend)) if pretend else wanted
