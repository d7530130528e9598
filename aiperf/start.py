"""Entry point of the command: a foreign package is refused before anything else of this program is imported.

It is in a separate file, because NVIDIA's `aiperf` has files called `__main__` and `cli`, which overwrite
ours if it is installed later. Only a file with a name that it does not use can then still report this.
"""

from __future__ import annotations

import gc
import sys

from aiperf.errors import AiperfError
from aiperf.host.package_clash import foreign_fault, refuse_clash
from aiperf.host.scheduler_warning import note


def main() -> int:
    """Runs the command `aiperf-hpc` and returns its exit code. The process must end after it."""
    try:
        return _started()
    except KeyboardInterrupt:  # during the imports; the command handles a later one itself
        print("aiperf-hpc: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if fault := foreign_fault(error):
            print(f"aiperf-hpc: {fault}", file=sys.stderr)
            return 1
        raise
    finally:
        # The memory is freed with the process. A last search for cycles would take a seventh of the whole
        # time of a command that reads a short run.
        gc.freeze()


def _started() -> int:
    if sys.argv[1:2] in (["run"], ["resume"]) and "--dry-run" not in sys.argv:
        note()  # a scheduler's warning may come before there is a run that it can stop
    try:
        refuse_clash()
    except AiperfError as error:
        print(f"aiperf-hpc: {error}", file=sys.stderr)
        return 1
    from aiperf.commands.main import main as command

    return command()
