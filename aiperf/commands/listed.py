"""A group of commands, whose help lists them."""

from __future__ import annotations

from collections.abc import Mapping

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
