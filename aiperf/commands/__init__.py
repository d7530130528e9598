"""The sub-commands of `aiperf-hpc`, in the order of their use."""

from __future__ import annotations

import click

from aiperf.commands.architectures import count, graph
from aiperf.commands.results import score, status, validate
from aiperf.commands.running import preset, resume, run

__all__ = ["COMMANDS"]

COMMANDS: tuple[click.Command, ...] = (run, resume, status, score, validate, count, graph, preset)
