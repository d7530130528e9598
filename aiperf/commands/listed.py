"""A group of commands, whose help lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

LONGEST = 200  # of a first sentence; click cuts longer ones, and by itself those of 45


class ListedGroup(click.Group):
    """Lists its commands with the whole first sentence of each."""

    def headings(self) -> Mapping[str, Sequence[click.Command]]:
        """The commands under the heading of their section."""
        return {"Commands": [command for _, command in sorted(self.commands.items()) if not command.hidden]}

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.commands))
        for heading, commands in self.headings().items():
            rows = [((each.name or "").ljust(width), each.get_short_help_str(LONGEST)) for each in commands]
            with formatter.section(heading):
                formatter.write_dl(rows)
