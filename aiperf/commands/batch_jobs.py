"""Checking, writing and submitting of batch scripts."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

import click
from click.core import ParameterSource

from aiperf.commands.arguments import PATH, Number
from aiperf.commands.messages import say
from aiperf.commands.run_options import RunRequest, run_options
from aiperf.commands.user_files import writing
from aiperf.config import Config
from aiperf.errors import AiperfError, ConfigError
from aiperf.host.programs import ToolFailed, ask
from aiperf.pretending.assumptions import assumed
from aiperf.wording import figure, first_few
from launch.job import Job
from launch.scheduler import JobState, Scheduler
from nas.bounded import read_text

SECONDS = 120
"""Time limit in seconds for a program of the scheduler, because a busy scheduler answers late."""

SET_BY_SCRIPT: Mapping[str, tuple[str, str]] = {
    "hours": ("--hours", "give the length with --hours, before the --"),
    "minutes": ("--minutes", "give the length with --hours, before the --"),
    "directory": ("--directory", "every job has its own"),
    "again": ("--resume", "the script already does this"),
    "dry_run": ("--dry-run", "for a rehearsal: aiperf-hpc run --dry-run"),
    "examples_per_second": ("--examples-per-second", "for a rehearsal: aiperf-hpc run --dry-run"),
    "repeats": ("--repeats", "give it before the --"),
    "same_seed": ("--same-seed", "several runs have 1, 2, …, or the season's if ranked"),
    "random_seed": ("--random-seed", "several runs have 1, 2, …, or the season's if ranked"),
}
"""Options of a run that a script sets itself, each with its name and what to do instead. If the user gave
them, they would be ignored, or refused in the job."""

site_option = click.option("--site", type=PATH, default="site.toml", help="Site file of the machine.")
hours_option = click.option(
    "--hours",
    type=Number(min=0, min_open=True),
    default=1.0,
    help="Length of the timed span [h]; the job asks for more.",
)


@click.command()
@run_options
def _run_of_jobs(**parameters: object) -> int:
    """A command with the options of `run`, which only parses them: the jobs run it."""
    raise AssertionError(parameters)


def run_context(options: Sequence[str], hours: float, several: bool) -> click.Context:
    """The run's options as jobs will pass them, parsed now, so that errors are reported before a job waits
    for hours.

    `several`: whether there is more than one run. Raises ConfigError, and what click raises.
    """
    context = _run_of_jobs.make_context("aiperf-hpc run", list(options))
    for name, (option, instead) in SET_BY_SCRIPT.items():
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if given and (several or name != "random_seed"):
            raise ConfigError(f"{option} cannot be given to the run of a job: {instead}")
    context.params["hours"] = hours
    return context


def agree(context: click.Context, request: RunRequest, config: Config, jobs: Sequence[Job]) -> None:
    """Prints what the jobs will run and what it costs, and asks for confirmation unless an option has chosen
    it.

    Raises ConfigError for ranked runs with another random seed than the season's, if there is no terminal to
    ask on, if the answer is no, and if the assumptions do not exist.
    """
    _refuse_other_season(config)
    for line in plan_lines(request, config, jobs):
        say(line)
    if (pretend := context.params.get("pretend")) is not None:
        assumed(pretend)  # checked now, because a job would report it only after it has waited
        say(f"nothing is trained: workers wait as long as the machine model {pretend} predicts")
    if any(context.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in ("name", "path")):
        return
    if not sys.stdin.isatty():
        raise ConfigError(
            f"neither --preset nor --data is given; for the default, write after the --: -- --preset "
            f"{request.preset}"
        )
    if not click.confirm(f"Neither --preset nor --data was given. Run {request.preset}?", err=True):
        raise ConfigError(
            "nothing was written; give the preset after the --, such as: -- --preset ranked --data DIR"
        )


def _refuse_other_season(config: Config) -> None:
    """Refuses a ranked run with another random seed than the season's now; otherwise its job would be refused
    after it has waited."""
    if config.ranked:
        from aiperf.tasks.registry import task_of

        limits = task_of(config.data).ranked
        if wrong := [] if limits is None else limits.random_seed_faults(config.random_seed):
            raise ConfigError(f"ranked = true, but {wrong[0]}; omit --random-seed or set ranked = false")


def plan_lines(request: RunRequest, config: Config, jobs: Sequence[Job]) -> tuple[str, str]:
    """The plan in two lines: what these jobs run, and for how long on how many nodes. Node-hours are of the
    timed spans; those requested include initialisation and test."""
    data = " in ".join(filter(None, (config.data.name, config.data.path)))
    spans = [job.span_node_hours for job in jobs]
    spent = "1 node-hour" if sum(spans) == 1 else f"{figure(sum(spans))} node-hours"
    if len(jobs) > 1:
        spent = f"{' + '.join(map(figure, spans))} = {spent}"
    sizes = jobs[0].sizes or tuple(job.nodes for job in jobs)
    nodes = "1 node" if sizes == (1,) else f"{', '.join(map(str, sizes))} nodes"
    each = "each of " if len(sizes) > 1 else ""
    repeat = f", {jobs[0].repeat} times" if jobs[0].repeat > 1 else ""
    one = f", in one job of {jobs[0].nodes} nodes" if jobs[0].sizes else ""
    hours, requested = jobs[0].hours, figure(sum(job.limit_node_hours for job in jobs))
    what = f"preset {request.preset}, data {data}, seed {config.seed_architecture}"
    how = f"format {config.training.format}, search {config.search.name}"
    where = f"{hours:g} h on {each}{nodes}{repeat}{one}"
    return f"the run: {what}, {how}", f"its length: {where}: {spent}; requested: {requested} node-hours"


def free_name(stem: str, ending: str, text: str) -> Path:
    """The first of STEM.ENDING, STEM-2.ENDING, … that does not exist, or has this text already: the user may
    have edited the others. Whoever writes a script again with other options keeps the one before."""
    paths = (Path(f"{stem}{f'-{number}' if number > 1 else ''}.{ending}") for number in count(1))
    return next(
        path for path in paths if not os.path.lexists(path) or (path.is_file() and read_text(path) == text)
    )


def write_script(path: Path, text: str, mode: int = 0o755) -> None:
    """Writes a script, which has this mode from its first byte on, because it may hold a secret. Raises
    AiperfError if bash cannot parse it, and if a file with other contents exists, because the user may have
    edited it."""
    _refuse_broken(text)
    with writing(path):
        if path.exists() and read_text(path) != text:
            raise AiperfError(
                f"{path} already exists with different content; remove it, or write to another file"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode)
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)


def _refuse_broken(text: str) -> None:
    """Refuses a script that bash cannot parse: lines of a site file may begin a block, a quote or a
    here-document without ending it."""
    try:
        read = ask(["bash", "-n"], SECONDS, text)
    except ToolFailed:  # scripts may be written on a machine without bash
        return
    if faults := read.errors.splitlines():
        raise AiperfError(f"bash cannot read the script ({faults[0]}); fix setup in the site file")


def hand_in(scheduler: Scheduler, script: Path, after: Sequence[str] = ()) -> str:
    """Submits a script that starts after these jobs; returns the new job's id. Raises AiperfError if the
    scheduler refuses it, or prints no id."""
    where = f"; what it requests is in {script}, below the lines marked EDIT"
    answer = _output_of(scheduler.submit(after), read_text(script), where)
    try:
        return scheduler.submitted(answer)
    except ValueError as error:
        raise AiperfError(str(error)) from None


def job_states(scheduler: Scheduler, jobs: Sequence[str]) -> Mapping[str, JobState]:
    """States of jobs; what the scheduler printed beside them is shown. Raises AiperfError if it cannot be
    read, because a job that is taken to be gone would be submitted again."""
    if not jobs:
        return {}
    words = scheduler.ask(jobs)
    try:
        found = scheduler.states(_output_of(words, ""))
    except ValueError as error:
        raise AiperfError(f"{words[0]}: {error}; see what it prints: {shlex.join(words)}") from None
    show_skipped(words[0], found.skipped)
    return found.known


def show_skipped(tool: str, lines: Sequence[str]) -> None:
    """Names the parts of an answer that were not used."""
    if lines:
        say(f"ignored in the output of {tool}: {first_few([repr(line) for line in lines])}")


def _output_of(words: list[str], given: str, remedy: str = "") -> str:
    """The output of a command. Raises AiperfError with the last line of its output if it fails, and the
    remedy."""
    try:
        answer = ask(words, SECONDS, given)
    except ToolFailed as error:
        if error.is_missing:
            raise AiperfError(f"{words[0]} not found; use a node from which jobs can be submitted") from None
        raise AiperfError(f"{words[0]} {error}; try again") from None
    if answer.code:
        raise AiperfError(f"{words[0]} refused: {answer.reason}{remedy}")
    return answer.output
