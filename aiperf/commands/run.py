"""`run`, `resume` and `preset`. What runs is imported only once it runs: the help needs none of it."""

from __future__ import annotations

import os
from pathlib import Path

import click

from aiperf.commands.arguments import is_typed, only_with, run_argument
from aiperf.commands.optional_libraries import refuse_no_run
from aiperf.commands.run_options import RunRequest, rank_options, rank_words, run_options
from aiperf.config import preset_names, preset_text
from aiperf.errors import WorldError
from aiperf.journal.run_files import RunFiles
from aiperf.ranks.rank_options import RankOptions

UNREPEATED = (
    "--repeats cannot be used under mpiexec, srun or torchrun, because ranks end with their run; start each "
    "run with its own --directory DIR/1, DIR/2, … and --random-seed, then show their spread with "
    "`aiperf-hpc spread DIR`; `aiperf-hpc launch slurm --repeats 5` writes a script that does so"
)
"""Reason why a launcher's ranks cannot make several runs."""


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
@run_options
def run(
    request: RunRequest,
    like: Path | None,
    directory: Path | None,
    again: bool,
    repeats: int,
    same_seed: bool,
    options: RankOptions,
    dry_run: bool,
    examples_per_second: float | None,
) -> int:
    """Benchmark this machine: train growing networks on real images or text until time is up.

    By default it uses all devices of the machine; on several nodes, start it with mpiexec or srun. Settings
    without an option come from the preset; in a batch job, the timed span is fitted to the job's time limit.
    """
    only_with("--dry-run", dry_run, "examples_per_second")
    only_with("--repeats", repeats > 1, "same_seed")
    if like is not None and is_typed("name"):
        raise click.UsageError("give --preset or --like, not both", click.get_current_context())
    if again and directory is None:
        raise click.UsageError("--resume needs the --directory of the run", click.get_current_context())
    refuse_no_run()
    from aiperf.commands.single_run import start_or_continue
    from aiperf.ranks.launcher import launched_rank
    from aiperf.ranks.ranks import Ranks, across

    is_series = repeats > 1 and not dry_run
    if is_series and launched_rank(os.environ) is None:
        from aiperf.commands.series import repeat

        words = rank_words(click.get_current_context())
        return repeat(request, like, directory, again, repeats, same_seed, words)

    def lead_single(ranks: Ranks) -> int:
        if is_series:
            raise WorldError(UNREPEATED)
        return start_or_continue(ranks, request, like, directory, again, dry_run, examples_per_second)

    return across(options, lead_single)


@click.command()
@run_argument
@rank_options
def resume(directory: Path, options: RankOptions) -> int:
    """Continue a run that was stopped or killed. At most the trials in flight are lost.

    The number of ranks may differ from before. A run that reached its deadline, or that Ctrl-C ended, is
    complete: its result is shown.
    """
    refuse_no_run()
    from aiperf.commands.single_run import continue_run
    from aiperf.ranks.ranks import across

    return across(options, lambda ranks: continue_run(RunFiles(directory), ranks))
