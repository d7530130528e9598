"""A group of commands that imports a command only when it is called, because importing all of them would take
most of the time of a command."""

from __future__ import annotations

import ast
import gc
import os
from collections import UserDict
from collections.abc import Mapping
from functools import cache
from pkgutil import get_data, resolve_name
from typing import Any

import click

from aiperf.host import variables

LONGEST = 200  # of a first sentence; click cuts longer ones, and by itself those of 45
BLAS_THREADS = "OPENBLAS_NUM_THREADS"
"""Variable from which OpenBLAS, in numpy's wheels, takes its number of threads."""
HEADING = "Commands"
"""Heading of the commands that have no other."""

Places = Mapping[str, Mapping[str, str]]
"""Location of each command as "package.module:function", by heading and name."""


class LazyCommands(UserDict[str, Any]):
    """Commands by name. Those given by their location are imported when they are looked up."""

    def __getitem__(self, name: str) -> click.Command:
        """The command of that name, imported if it is given by its location."""
        item: str | click.Command = self.data[name]
        return _imported(item) if isinstance(item, str) else item


class CommandGroup(click.Group):
    """Lists its commands under headings, each with the whole first sentence of its help.

    A command is either added as usual, or given by its location; the help of the latter is read without
    importing it.
    """

    def __init__(self, *args: Any, places: Places | None = None, **settings: Any) -> None:
        """`places` are the locations of commands, by heading and name."""
        super().__init__(*args, **settings)
        self.places = places or {}
        # Click takes from here what it runs, completes and suggests for a misspelt name.
        self.commands = LazyCommands(
            {name: place for names in self.places.values() for name, place in names.items()}
        )

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of the help, with all names in columns of one width."""
        width = max(map(len, self.commands))
        for heading, sentences in self._sentences().items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), sentence) for name, sentence in sentences.items()])

    def _sentences(self) -> dict[str, dict[str, str]]:
        """The first sentence of each command that is shown, by heading and name."""
        sentences = {
            heading: {name: first_sentence(place) for name, place in names.items()}
            for heading, names in self.places.items()
        }
        located = {name for names in self.places.values() for name in names}
        added = [self.commands[name] for name in self.commands if name not in located]
        shown = {str(each.name): each.get_short_help_str(LONGEST) for each in added if not each.hidden}
        if shown:
            sentences[HEADING] = dict(sorted({**sentences.get(HEADING, {}), **shown}.items()))
        return sentences


def first_sentence(place: str) -> str:
    """The short help of the command at a location, read from the docstring in its file without importing it.
    Raises KeyError if the file has no such function."""
    module, _, function = place.partition(":")
    package, _, name = module.rpartition(".")
    # Not by `importlib.resources`, which imports the readers of archives.
    tree = ast.parse(get_data(package, f"{name}.py") or b"")
    docstrings = {
        node.name: ast.get_docstring(node) for node in tree.body if isinstance(node, ast.FunctionDef)
    }
    return click.Command(function, help=docstrings[function]).get_short_help_str(LONGEST)


@cache
def _imported(place: str) -> click.Command:
    """Imports a command. Garbage collection is off meanwhile, and the imported objects are excluded from it
    later, because they stay for the life of the process.

    A command that imports numpy reads journals, and has no large matrices: the BLAS library of numpy starts
    no threads in it. It would start one per core, for which `score` would take a twelfth longer on two cores.
    The environment is as before when the command starts.
    """
    was_on, stated = gc.isenabled(), variables.raw(os.environ, BLAS_THREADS)
    gc.disable()
    if stated is None:
        os.environ[BLAS_THREADS] = "1"
    try:
        command: click.Command = resolve_name(place)
    finally:
        if stated is None:
            del os.environ[BLAS_THREADS]
        gc.freeze()
        if was_on:
            gc.enable()
    return command
