"""`launch scaling` and `launch status`: a scaling study of many sizes, many jobs and one table.

A study outlives every process: days may pass between its jobs. So all that is known of it is in its folder
(plan, configuration, number of each job, journals), where `status` reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from aiperf.commands.arguments import PATH, node_counts
from aiperf.commands.batch_jobs import (
    agree,
    hand_in,
    hours_option,
    job_states,
    run_context,
    site_option,
    write_script,
)
from aiperf.commands.compare import refuse_no_table, write_table
from aiperf.commands.messages import say_next
from aiperf.commands.run_options import rank_words, take_request
from aiperf.commands.user_files import reading
from aiperf.config import to_toml
from aiperf.errors import AiperfError, ConfigError, JournalError
from aiperf.journal.file import read_journal
from aiperf.journal.replay import Replay, replay
from aiperf.journal.run_files import RunFiles
from aiperf.wording import counted
from launch import SCHEDULERS
from launch.job import Job
from launch.script import script_text, table_text
from launch.site import load_site
from launch.study import (
    SizeState,
    Study,
    StudyFiles,
    StudySize,
    config_hash,
    sizes_text,
    standing,
    study_from_json,
    study_json,
)
from nas.bounded import read_text


@click.command()
@site_option
@click.option("--scheduler", type=click.Choice(tuple(SCHEDULERS)), default="slurm")
@click.option("--nodes", required=True, metavar="N,N,…", help="Sizes in nodes, such as 4,8,16,32.")
@hours_option
@click.option(
    "--directory", type=PATH, default="scaling-study", help="Directory of the study; visible to all nodes."
)
@click.option(
    "--one-job", is_flag=True, help="Write one job of the largest size that runs all sizes in turn."
)
@click.option("--submit", is_flag=True, help="Submit all jobs.")
@click.option("--no-mpi", is_flag=True, hidden=True)
@click.argument("options", nargs=-1, metavar="[-- RUN OPTIONS]")
def scaling(
    site: Path,
    scheduler: str,
    nodes: str,
    hours: float,
    directory: Path,
    one_job: bool,
    submit: bool,
    no_mpi: bool,
    options: tuple[str, ...],
) -> None:
    """Write the jobs of a weak-scaling study: one per size, and a last one that writes the table.

    Prints the plan and its node-hours, and asks for a preset if neither --preset nor --data is given. All
    sizes run the same configuration, each with a different random seed, or with the season's if it is
    ranked. `aiperf-hpc launch status STUDY` shows the progress and can resubmit missing sizes.
    """
    if no_mpi:
        raise ConfigError(
            "a scaling study has no form without MPI; write one job for each size with aiperf-hpc launch "
            "kubernetes --no-mpi, and then their table with aiperf-hpc scaling RUN…"
        )
    context = run_context(options, hours, several=True)
    machine, chosen = load_site(site), SCHEDULERS[scheduler]
    if not (chosen.waits or one_job):
        raise ConfigError(
            f"the job of the table must begin after the others, and {chosen.name} cannot wait; use --one-job"
        )
    files = StudyFiles(directory.absolute(), chosen.ending)
    sizes = node_counts(nodes)
    request = take_request(dict(context.params))
    config = request.config()
    # Written once and read by every job: a preset that changes meanwhile would spoil the comparison.
    text = to_toml(config)
    study = Study(scheduler, sizes, hours, rank_words(context), config_hash(text))
    if not machine.container.image:  # which may hold more than is installed here
        refuse_no_table()
    if one_job:
        where = str(files.directory)
        job = Job(sizes[-1], hours, files.name, options, where, ranked=config.ranked, sizes=sizes)
        path, script = files.directory / f"weak_scaling.{chosen.ending}", script_text(chosen, machine, job)
        agree(context, request, config, [job])
        write_script(path, script)
        click.echo(f"{path}{f': job {hand_in(chosen, path)}' if submit else ''}")
        return
    jobs = {size: study.job(size, files, config.ranked) for size in sizes}
    scripts = {files.script(size): script_text(chosen, machine, job) for size, job in jobs.items()}
    agree(context, request, config, list(jobs.values()))
    write_script(files.config, text)
    write_script(files.study, study_json(study))
    for path, script in scripts.items():
        write_script(path, script)
    write_script(files.table_script, table_text(chosen, machine, study.table_job(files), files.directory))
    if submit:
        _submit(study, files, _standings(study, files, ask=True))
    click.echo(f"{directory}: {counted(len(sizes), 'size')}, configuration {study.config_hash[:12]}…")
    say_next("launch", "status", directory, *([] if submit else ["--submit"]))


@click.command()
@click.argument("directory", metavar="STUDY", type=PATH)
@click.option("--submit", is_flag=True, help="Resubmit failed and missing sizes, and the table.")
@click.option("--table", is_flag=True, help="Write the table of the finished sizes.")
def status(directory: Path, submit: bool, table: bool) -> int:
    """Show which sizes of a scaling study are done, running, failed or missing.

    Exit code 1 until all are done.
    """
    files, study = _read(directory)
    # The table's job may run where the scheduler cannot be asked, and has nothing to ask.
    sizes = _standings(study, files, ask=not table)
    click.echo(sizes_text(sizes))
    done = [size.nodes for size in sizes if size.standing is SizeState.DONE]
    if table:
        if not done:
            raise AiperfError(f"{directory}: no size is finished yet, so there is nothing to compare")
        write_table([files.run(nodes) for nodes in done], files.table, published=False)
    if submit:
        _submit(study, files, sizes)
    return int(len(done) < len(sizes))


def _read(directory: Path) -> tuple[StudyFiles, Study]:
    """The files of a study, and its plan. Raises AiperfError if its configuration was edited, because its
    sizes would then no longer run the same."""
    path = StudyFiles(directory.absolute()).study
    with reading(path, "give a study directory"):
        study = study_from_json(read_text(path), path)
    if study.scheduler not in SCHEDULERS:
        raise AiperfError(
            f"{path}: scheduler is {study.scheduler!r}; it must be one of {', '.join(SCHEDULERS)}"
        )
    files = StudyFiles(directory.absolute(), SCHEDULERS[study.scheduler].ending)
    with reading(files.config, "start a new study"):
        config = read_text(files.config)
    if config_hash(config) != study.config_hash:
        raise AiperfError(f"{files.config} was changed since the study began; start a new study")
    return files, study


def _standings(study: Study, files: StudyFiles, ask: bool) -> list[StudySize]:
    """How far each size is, by its journal and, if `ask`, by what the scheduler says of its job."""
    jobs = {nodes: _job_id(files, nodes) for nodes in study.nodes}
    runs = {nodes: _run(files.run(nodes)) for nodes in study.nodes}
    alone = [standing(nodes, runs[nodes], jobs[nodes], {}) for nodes in study.nodes]
    # A scheduler forgets old jobs, and some fail when asked for one: those of what is done are not asked for.
    waiting = [jobs[size.nodes] for size in alone if jobs[size.nodes] and size.standing is not SizeState.DONE]
    states = job_states(SCHEDULERS[study.scheduler], waiting) if ask else {}
    return [standing(nodes, runs[nodes], jobs[nodes], states) for nodes in study.nodes]


def _job_id(files: StudyFiles, nodes: int) -> str:
    """The job of a size; empty before it is submitted."""
    path = files.job_id(nodes)
    return read_text(path).strip() if path.exists() else ""


def _run(directory: Path) -> Replay | JournalError | None:
    """The run in a directory; None before it has started, and the error if its journal cannot be read, so
    that the other sizes are still shown."""
    path = RunFiles(directory).journal
    try:
        return replay(read_journal(path)) if path.exists() and path.stat().st_size else None
    except JournalError as error:
        return error


def _submit(study: Study, files: StudyFiles, sizes: Sequence[StudySize]) -> None:
    """Submits the missing sizes, and the job for the table, which starts after them and after those in
    progress."""
    scheduler = SCHEDULERS[study.scheduler]
    for size in sizes:
        if size.to_submit:
            job = hand_in(scheduler, files.script(size.nodes))
            files.job_id(size.nodes).write_text(f"{job}\n", encoding="utf-8")
            click.echo(f"{counted(size.nodes, 'node')}: job {job}")
    waited = [_job_id(files, size.nodes) for size in sizes if size.standing is not SizeState.DONE]
    if waited and not any(size.to_submit for size in sizes):
        click.echo("nothing is missing; the last job writes the table")
        return
    click.echo(f"the table: job {hand_in(scheduler, files.table_script, waited)}")
