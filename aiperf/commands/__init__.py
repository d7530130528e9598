"""The sub-commands of `aiperf-hpc`."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["COMMANDS"]

COMMANDS: Mapping[str, Mapping[str, str]] = {
    "Run": {
        "run": "aiperf.commands.running:run",
        "resume": "aiperf.commands.running:resume",
        "preset": "aiperf.commands.running:preset",
        "data": "aiperf.commands.images.preparing:data",
        "nni": "aiperf.commands.nni:nni",
    },
    "Look": {
        "list": "aiperf.commands.looking.run_list:list_runs",
        "status": "aiperf.commands.looking.results:status",
        "serve": "aiperf.commands.looking.serving:serve",
        "score": "aiperf.commands.looking.results:score",
        "report": "aiperf.commands.looking.reporting:report",
        "export": "aiperf.commands.looking.exporting:export",
        "compare": "aiperf.commands.looking.comparing:compare",
        "spread": "aiperf.commands.looking.comparing:spread",
        "scaling": "aiperf.commands.looking.comparing:scaling",
        "cost": "aiperf.commands.looking.costing:cost",
        "power": "aiperf.commands.looking.metering:power",
        "count": "aiperf.commands.architectures:count",
        "graph": "aiperf.commands.architectures:graph",
        "profile": "aiperf.commands.profiling:profile",
        "infer": "aiperf.commands.inferring:infer",
    },
    "Check": {
        "doctor": "aiperf.commands.examining:doctor",
        "peak": "aiperf.commands.peak_rates:peak",
        "validate": "aiperf.commands.looking.results:validate",
        "accept": "aiperf.commands.looking.accepting:accept",
    },
    "Publish": {
        "package": "aiperf.commands.submitting:package",
        "key": "aiperf.commands.submitting:key",
        "rank": "aiperf.commands.submitting:rank",
        "notary": "aiperf.commands.notarising:notary",
    },
    "Cluster": {
        "launch": "aiperf.commands.cluster.launching:launch",
        "simulate": "aiperf.commands.simulated.simulating:simulate",
    },
}
"""Commands by purpose, as the help lists them, each with the module and function from which it is imported
when it is called."""
