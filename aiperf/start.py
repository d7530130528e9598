"""The way in: a foreign package is refused before anything else of this program is imported.

In a file of its own, because NVIDIA's `aiperf` has files called `__main__` and `cli`: installed later,
it overwrites ours, and only a name that it does not use can still say so.
"""

from __future__ import annotations

import gc
import sys

from aiperf.clash import refuse_clash
from aiperf.errors import AiperfError
from aiperf.warned import note


def main() -> int:
    """The command `aiperf-hpc`; its exit code. The process is to end after it."""
    try:
        return _started()
    except KeyboardInterrupt:  # while it imports; the command has its own word for a later one
        print("aiperf-hpc: interrupted", file=sys.stderr)
        return 130
    finally:
        # The memory is given back with the process. Looking through it for cycles first takes a seventh of
        # all the time of a command that reads a short run.
        gc.freeze()


def _started() -> int:
    if sys.argv[1:2] in (["run"], ["resume"]) and "--dry-run" not in sys.argv:
        note()  # a warning that comes before there is a run to be stopped
    try:
        refuse_clash()
    except AiperfError as error:
        print(f"aiperf-hpc: {error}", file=sys.stderr)
        return 1
    from aiperf.commands.main import main as command

    return command()
