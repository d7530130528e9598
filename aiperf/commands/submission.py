"""Scripts on their way to a scheduler."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from aiperf.errors import AiperfError
from launch.scheduler import JobState, Scheduler

__all__ = ["hand_in", "hours_option", "job_states", "site_option", "write_script"]

SECONDS = 120  # a busy scheduler answers late

site_option = click.option(
    "--site",
    type=click.Path(path_type=Path),
    default="site.toml",
    show_default=True,
    help="The machine's site file.",
)
hours_option = click.option(
    "--hours",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Length of the timed span [h]; the job asks for more.",
)


def write_script(path: Path, text: str) -> None:
    """Raises AiperfError where another text is there already: a person may have edited it."""
    try:
        if path.exists() and path.read_text(encoding="utf-8") != text:
            raise AiperfError(f"{path} is there already and says something else; remove it, or choose -o")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
    except OSError as error:
        raise AiperfError(f"{path} cannot be written: {error.strerror}") from None


def hand_in(scheduler: Scheduler, script: Path, after: Sequence[str] = ()) -> str:
    """Submits a script, to begin after these jobs; the new job's id."""
    answer = _ran(scheduler.submit(after), script.read_text(encoding="utf-8"))
    try:
        return scheduler.submitted(answer)
    except ValueError as error:
        raise AiperfError(str(error)) from None


def job_states(scheduler: Scheduler, jobs: Sequence[str]) -> Mapping[str, JobState]:
    return scheduler.states(_ran(scheduler.ask(jobs), "")) if jobs else {}


def _ran(words: list[str], given: str) -> str:
    """Raises AiperfError with the last line of what the command said."""
    try:
        answer = subprocess.run(words, input=given, capture_output=True, text=True, timeout=SECONDS)
    except FileNotFoundError:
        raise AiperfError(f"there is no {words[0]} here; go to a node where jobs are submitted") from None
    except subprocess.TimeoutExpired:
        raise AiperfError(f"{words[0]} did not answer in {SECONDS} s; try again") from None
    if answer.returncode:
        last = (answer.stderr or answer.stdout).strip().splitlines()[-1:] or ["no reason given"]
        raise AiperfError(f"{words[0]} refused: {last[0]}")
    return answer.stdout
