"""The sub-commands of `aiperf-hpc`."""

from __future__ import annotations

from collections.abc import Mapping

import click

from aiperf.commands.architectures import count, graph
from aiperf.commands.cluster.launching import launch
from aiperf.commands.examining import doctor
from aiperf.commands.images.command import data
from aiperf.commands.inferring import infer
from aiperf.commands.looking.accepting import accept
from aiperf.commands.looking.comparing import compare, scaling
from aiperf.commands.looking.costing import cost
from aiperf.commands.looking.exporting import export
from aiperf.commands.looking.listing import list_runs
from aiperf.commands.looking.reporting import report
from aiperf.commands.looking.results import score, status, validate
from aiperf.commands.looking.serving import serve
from aiperf.commands.measuring import peak
from aiperf.commands.nni import nni
from aiperf.commands.profiling import profile
from aiperf.commands.running import preset, resume, run
from aiperf.commands.simulated.command import simulate
from aiperf.commands.submitting import key, package, rank

__all__ = ["COMMANDS"]

COMMANDS: Mapping[str, tuple[click.Command, ...]] = {
    "Run": (run, resume, preset, data, nni),
    "Look": (
        list_runs,
        status,
        serve,
        score,
        report,
        export,
        compare,
        scaling,
        cost,
        count,
        graph,
        profile,
        infer,
    ),
    "Check": (doctor, peak, validate, accept),
    "Publish": (package, key, rank),
    "Cluster": (launch, simulate),
}
"""By what a person is about to do, as the help lists them."""
