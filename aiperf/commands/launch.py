"""`launch`: batch scripts for a scheduler, which it submits on request.

A script is printed text that an administrator can read before anything is submitted. What differs between
machines is in the site file, what differs between schedulers in the package `launch`.
"""

from __future__ import annotations

import getpass
import secrets
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from aiperf.commands.arguments import Whole, output_option
from aiperf.commands.batch_jobs import (
    agree,
    free_name,
    hand_in,
    hours_option,
    run_context,
    show_skipped,
    site_option,
    write_script,
)
from aiperf.commands.command_groups import HEADING, CommandGroup
from aiperf.commands.messages import say, say_next
from aiperf.commands.run_options import take_request
from aiperf.commands.user_files import write_file
from aiperf.errors import AiperfError
from aiperf.host.programs import ToolFailed, ask
from aiperf.wording import counted
from launch import FORMS, SCHEDULERS
from launch.job import Job
from launch.scheduler import Scheduler
from launch.script import script_text
from launch.site import load_site
from launch.site_draft import GUESSED, QUESTIONS, site_text, skipped

ASK_SECONDS = 30
"""Time limit in seconds for a program that describes the machine; without its answer a value is guessed."""
SECRET_BYTES = 32
"""Random bytes of a secret: as many as its MAC has."""
Decorated = TypeVar("Decorated", bound=Callable[..., object])
OF_SCHEDULER = ("sinfo", "mpi", "accounts")
"""Questions to programs of a scheduler."""
STUDIES = {
    "scaling": "aiperf.commands.scaling_study:scaling",
    "status": "aiperf.commands.scaling_study:status",
}
"""Commands of this group that read journals; they are imported only when called."""


@click.group(cls=CommandGroup, places={HEADING: STUDIES})
def launch() -> None:
    """Write batch scripts for a scheduler, and submit them on request.

    A site file describes the machine: `aiperf-hpc launch init-site` writes a first one.
    """


def _form_options(word: str) -> Callable[[Decorated], Decorated]:
    """The options that choose another form of a scheduler's jobs, if it has any."""

    def decorated(command: Decorated) -> Decorated:
        for name, form in FORMS.get(word, {}).items():
            option = click.option(f"--{name}", "form", flag_value=name, help=form.option_help)
            command = option(command)
        return command

    return decorated


def _command_for(word: str, scheduler: Scheduler) -> click.Command:
    """The sub-command for a scheduler, whose name is `word`. It is made here, and not written once for each,
    so that a new scheduler has a command as soon as it is in SCHEDULERS."""

    example = f"aiperf-hpc launch {word} --nodes 4 -- --preset synthetic"
    about = f"Write a batch script for {scheduler.title}; --submit submits it."

    @click.command(word, help=f"{about}\n\nOptions of the run go after --, such as: {example}")
    @site_option
    @click.option("--nodes", type=Whole(1), default=1, help="Number of nodes.")
    @hours_option
    @click.option("--name", default="aiperf-hpc", help="Name of the job.")
    @click.option(
        "--repeats",
        type=Whole(1),
        default=1,
        help="Number of runs, one after another, with random seeds 1, 2, …, or, if ranked, all with the "
        "season's; then their spread is shown.",
    )
    @output_option(
        "Script file; default: NAME-NODES, numbered if there is another one, plus the scheduler's ending."
    )
    @click.option("--submit", is_flag=True, help="Submit the script.")
    @_form_options(word)
    @click.argument("options", nargs=-1, metavar="[-- RUN OPTIONS]")
    def command(
        site: Path,
        nodes: int,
        hours: float,
        name: str,
        repeats: int,
        output: Path | None,
        submit: bool,
        options: tuple[str, ...],
        form: str | None = None,
    ) -> None:
        # The run's options are read as `run` would read them, so that a mistake shows here, not in the queue.
        context = run_context(options, hours, several=repeats > 1)
        request = take_request(dict(context.params))
        config = request.config()
        chosen = FORMS[word][form] if form else scheduler
        secret = "" if chosen.has_mpi else secrets.token_urlsafe(SECRET_BYTES)
        job = Job(nodes, hours, name, options, repeat=repeats, ranked=config.ranked, secret=secret)
        text = script_text(chosen, load_site(site), job)
        path = output or free_name(f"{name}-{nodes}", chosen.ending, text)
        agree(context, request, config, [job])
        write_script(path, text, mode=0o600 if secret else 0o755)
        if submit:
            click.echo(f"{path}: job {hand_in(chosen, path)}")
            if word != "kubernetes":  # whose runs are on a volume of the cluster
                say_next("list")
        else:
            click.echo(f"{path}; submit it with: {shlex.join(chosen.submit())} < {shlex.quote(str(path))}")

    return command


for _word, _scheduler in SCHEDULERS.items():
    launch.add_command(_command_for(_word, _scheduler))


@launch.command("init-site")
@output_option("Site file to write.", "site.toml")
def init_site(output: Path) -> None:
    """Write a first site file from what this machine reports (sinfo, srun, sacctmgr, nvidia-smi, module)."""
    # Several tools may be absent: a site file with marked guesses is a better start than an error.
    answers = {name: answer for name, words in QUESTIONS.items() if (answer := _answer(*words))}
    text = site_text(answers, getpass.getuser(), _installation())
    if output.exists():
        raise AiperfError(f"{output} already exists; remove it, or choose another name with -o")
    write_file(output, text)
    for tool, lines in skipped(answers).items():
        show_skipped(tool, lines)
    tools = ", ".join(QUESTIONS[name][0] for name in OF_SCHEDULER if name in answers)
    guesses = f'{counted(text.count(GUESSED), "guessed value")}, marked "{GUESSED}"'
    click.echo(f"wrote {output}; {tools or 'no scheduler'} answered; {guesses}")
    say_next("launch", *(("slurm", "--nodes", "2", "--", "--preset", "digits") if tools else ("--help",)))


def _installation() -> str:
    """A line of shell that activates this installation. Not every environment has a script to source; conda's
    have none."""
    activate = Path(sys.prefix, "bin", "activate")
    if activate.exists():
        return f"source {shlex.quote(str(activate))}"
    command = shutil.which("aiperf-hpc") or sys.executable
    return f'export PATH={shlex.quote(str(Path(command).parent))}:"$PATH"'


def _answer(*words: str) -> str:
    """The output of a command; empty if it does not exist, and, with a line that says so, if it fails or
    hangs."""
    try:
        answer = ask(words, ASK_SECONDS)
    except ToolFailed as error:
        if not error.is_missing:
            _show_failed(words[0], str(error))
        return ""
    if answer.code:
        _show_failed(words[0], f"fails ({answer.how}: {answer.reason})")
        return ""
    return answer.output or answer.errors


def _show_failed(tool: str, how: str) -> None:
    """Reports a tool whose answer the site file lacks."""
    say(f"{tool} {how}; its answer is guessed")
