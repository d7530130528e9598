"""The sub-commands of `aiperf-hpc`. Each is in the file of its name, or in that of a command like it.

A command is a thin shell: it reads arguments, calls a function of another package, and prints what that
returns. A new one is a function with `@click.command()`, and a line in `COMMANDS`. It returns its exit code,
or None for 0; what goes wrong is raised as an AiperfError, which `main` prints as one line.

- `arguments` has arguments and options that several commands share, and the kinds of their values;
  `run_options` those that say what is run, and `site_options` those of a site file.
- `messages` prints on standard error. Standard output has the result alone, so that it can be piped.
- `user_files` opens runs, packages and other files that the user named, with a remedy if that fails.
- `optional_libraries` names the extra if a library is missing.

A command must answer in 0.3 s, so a module imports at its top only what the help needs, or what every use of
its command needs. Torch, figures and pages are imported in the function that uses them;
`tests/aiperf/test_start.py` counts the imports.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["COMMANDS"]

COMMANDS: Mapping[str, Mapping[str, str]] = {
    "Run": {
        "run": "aiperf.commands.run:run",
        "resume": "aiperf.commands.run:resume",
        "preset": "aiperf.commands.run:preset",
        "data": "aiperf.commands.data:data",
        "nni": "aiperf.commands.nni:nni",
    },
    "Look": {
        "list": "aiperf.commands.status:list_runs",
        "status": "aiperf.commands.status:status",
        "serve": "aiperf.commands.serve:serve",
        "score": "aiperf.commands.score:score",
        "report": "aiperf.commands.report:report",
        "export": "aiperf.commands.export:export",
        "compare": "aiperf.commands.compare:compare",
        "spread": "aiperf.commands.compare:spread",
        "scaling": "aiperf.commands.compare:scaling",
        "cost": "aiperf.commands.cost:cost",
        "power": "aiperf.commands.power:power",
        "count": "aiperf.commands.count:count",
        "graph": "aiperf.commands.graph:graph",
        "profile": "aiperf.commands.profile:profile",
        "infer": "aiperf.commands.infer:infer",
    },
    "Check": {
        "doctor": "aiperf.commands.doctor:doctor",
        "peak": "aiperf.commands.peak:peak",
        "validate": "aiperf.commands.validate:validate",
        "accept": "aiperf.commands.accept:accept",
    },
    "Publish": {
        "package": "aiperf.commands.package:package",
        "key": "aiperf.commands.rank:key",
        "rank": "aiperf.commands.rank:rank",
        "notary": "aiperf.commands.notary:notary",
    },
    "Cluster": {
        "launch": "aiperf.commands.launch:launch",
        "simulate": "aiperf.commands.simulate:simulate",
    },
}
"""Location of each command as "package.module:function", under the heading where the help lists it. A command
is imported from there when it is called."""
