"""Messages to the user, on standard error, where they are not mixed with results."""

from __future__ import annotations

import shlex

import click

from aiperf.wording import plain


def say(text: str) -> None:
    """Prints a message of the program, as one line."""
    say_line(f"aiperf-hpc: {text}")


def say_line(text: str) -> None:
    """Prints a line about the work that goes on, without the name of the program. It has no characters that
    could change the terminal, because names may come from elsewhere."""
    click.echo(plain(text), err=True)


def say_next(*words: object) -> None:
    """Prints the command that comes next, as a person would type it; never where the output is data."""
    click.echo(f"Next: aiperf-hpc {shlex.join(map(str, words))}", err=True)
