"""`doctor`: whether a machine is ready for a run."""

from __future__ import annotations

import os
from pathlib import Path

import click

from aiperf.commands.arguments import PATH, Number
from aiperf.commands.messages import say_line, say_next
from aiperf.commands.optional_libraries import refuse_no_run
from aiperf.commands.run_options import RunRequest, config_options, rank_options, typed_words
from aiperf.doctor.check import Grade, checks_json, checks_text
from aiperf.doctor.examination import examine, examine_alone, serve_examination
from aiperf.doctor.judge import judge
from aiperf.doctor.reports import WAIT_SECONDS
from aiperf.journal.run_files import RUNS
from aiperf.ranks.connect import connect, disconnect
from aiperf.ranks.launcher import launched_rank
from aiperf.ranks.mpi import dismiss
from aiperf.ranks.rank_options import RankOptions


@click.command()
@config_options
@click.option("--directory", type=PATH, default=RUNS, help="Directory of the run.")
@rank_options
@click.option(
    "--wait-seconds",
    type=Number(min=1),
    default=WAIT_SECONDS,
    envvar="AIPERF_DOCTOR_SECONDS",
    show_envvar=True,
    help="Time limit of the examination [s]: a rank that does not answer by then has failed. A longer one "
    "also gives drivers, devices and file systems more time. A site file sets it as doctor_seconds.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(
    request: RunRequest, directory: Path, options: RankOptions, wait_seconds: float, as_json: bool
) -> int:
    """Check in under a minute whether this machine is ready for a run with these options.

    Start it like the run, with the same mpiexec or srun, to check all nodes. Exit code 1 if a check fails;
    warnings, and what could not be checked, do not fail. They are counted and named in the last line.
    """
    refuse_no_run()
    started = launched_rank(os.environ)
    if started is None or started.rank == 0:  # in a job's output, before anything that may hang
        say_line(
            "aiperf-hpc doctor: checking hosts, devices, folders and data; waiting for answers for at most "
            f"{wait_seconds:.0f} s"
        )
    link = None if started is None else connect(started)
    if link is not None and link.rank > 0:
        serve_examination(link)
        disconnect(link)
        return 0
    config = request.config()
    if link is None:
        examination = examine_alone(config, options, directory, wait_seconds)
    else:
        examination = examine(link, config, options, directory, wait_seconds)
    checks = judge(examination)
    click.echo(checks_json(checks) if as_json else checks_text(checks))
    if link is not None and dismiss(link):
        disconnect(link)
    failed = any(check.outcome is Grade.FAILED for check in checks)
    # Under a launcher the next command is that of the batch script, which nobody types.
    if not (failed or as_json or started):
        context = click.get_current_context()
        say_next("run", *typed_words(context, {*context.params} - {"wait_seconds", "as_json"}))
    return int(failed)
