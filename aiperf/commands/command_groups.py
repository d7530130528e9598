"""A group whose commands are imported only when they are called, because importing all of them would take
most of the time of a command."""

from __future__ import annotations

import ast
import gc
from collections import UserDict
from collections.abc import Mapping
from functools import cache
from pkgutil import resolve_name
from typing import Any

import click

LONGEST = 200  # of a first sentence; click cuts longer ones, and by itself those of 45


class ListedGroup(click.Group):
    """Lists its commands with the whole first sentence of each."""

    def headings(self) -> Mapping[str, Mapping[str, str]]:
        """Under the heading of each section its commands, with the first sentence of each."""
        shown = [(name, command) for name, command in sorted(self.commands.items()) if not command.hidden]
        return {"Commands": {name: command.get_short_help_str(LONGEST) for name, command in shown}}

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.commands))
        for heading, sentences in self.headings().items():
            rows = [(name.ljust(width), sentence) for name, sentence in sentences.items()]
            with formatter.section(heading):
                formatter.write_dl(rows)


Places = Mapping[str, str]
"""Locations of commands by name, as "package.module:function"."""


class LazyCommands(UserDict[str, Any]):
    """Commands by name. Those given by their location are imported when they are looked up."""

    def __getitem__(self, name: str) -> click.Command:
        found: str | click.Command = self.data[name]
        return _imported(found) if isinstance(found, str) else found


class LazyGroup(ListedGroup):
    """Lists its commands under headings, and imports none of them for that."""

    def __init__(self, *args: Any, places: Mapping[str, Places], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.places = places
        self.commands = LazyCommands(
            {name: place for of_heading in places.values() for name, place in of_heading.items()}
        )

    def headings(self) -> Mapping[str, Mapping[str, str]]:
        return {
            heading: {name: first_sentence(place) for name, place in places.items()}
            for heading, places in self.places.items()
        }


def first_sentence(place: str) -> str:
    """The short help of the command at a location, read from the docstring in its file without importing
    it."""
    from importlib import resources  # imports tempfile and shutil

    module, _, function = place.partition(":")
    package, _, name = module.rpartition(".")
    tree = ast.parse((resources.files(package) / f"{name}.py").read_text(encoding="utf-8"))
    docstrings = {
        node.name: ast.get_docstring(node) for node in tree.body if isinstance(node, ast.FunctionDef)
    }
    return click.Command(function, help=docstrings[function]).get_short_help_str(LONGEST)


@cache
def _imported(place: str) -> click.Command:
    """Imports a command. Garbage collection is off meanwhile, and the imported objects are excluded from it
    later, because they stay for the life of the process."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        command: click.Command = resolve_name(place)
    finally:
        gc.freeze()
        if was_on:
            gc.enable()
    return command
