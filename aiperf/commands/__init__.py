"""The sub-commands of `aiperf-hpc`, in the order of their use."""

from __future__ import annotations

import click

from aiperf.commands.architectures import count, graph
from aiperf.commands.cluster.launching import launch
from aiperf.commands.examining import doctor
from aiperf.commands.images.command import data
from aiperf.commands.looking.comparing import compare, scaling
from aiperf.commands.looking.reporting import export, report
from aiperf.commands.looking.results import score, status, validate
from aiperf.commands.looking.serving import serve
from aiperf.commands.measuring import peak
from aiperf.commands.nni import nni
from aiperf.commands.running import preset, resume, run
from aiperf.commands.simulated.command import simulate
from aiperf.commands.submitting import key, package, rank

__all__ = ["COMMANDS"]

COMMANDS: tuple[click.Command, ...] = (
    run,
    resume,
    doctor,
    launch,
    status,
    serve,
    score,
    validate,
    report,
    export,
    compare,
    scaling,
    simulate,
    package,
    key,
    rank,
    data,
    peak,
    count,
    graph,
    preset,
    nni,
)
