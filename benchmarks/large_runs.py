"""How long each command takes that reads a large run, and how much memory.

    python -m benchmarks.large_runs [--trials 100000] [--groups 512] [--directory DIR]

Writes the journal of a run that never was, and types each command as a user would. Prints the table of
docs/scaling.md. Ends with 1 if a command failed or used more processor time than the goal. Not for a loaded
machine: its caches are shared.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

from aiperf.config import LimitsConfig
from benchmarks.script import head, row
from tests.journals import CIFAR, Machine, write_run

GOAL_SECONDS, GOAL_MEBIBYTES = 30.0, 2048.0
CONTACT = ("--organization", "None", "--person", "Nobody", "--address", "nobody@example.org")
SYSTEM = {"division": "open", "submitter": "None", "status": "Preview", "system_name": "Made up"}


@dataclass(frozen=True)
class Used:
    """What one command and the processes that it started used."""

    exit_code: int
    cpu_seconds: float
    mebibytes: float

    @property
    def meets_goal(self) -> bool:
        """Whether it ended well, within the goals of time and memory."""
        quick = self.cpu_seconds <= GOAL_SECONDS and self.mebibytes <= GOAL_MEBIBYTES
        return quick and self.exit_code == 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--groups", type=int, default=512)
    parser.add_argument("--directory", type=Path, help="keep the run there, and use the one that is there")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        run = options.directory or Path(scratch) / "run"
        if not run.exists():
            # Elsewhere: what this process holds would be counted as memory of the commands that it starts.
            maker = get_context("spawn").Process(target=make, args=(run, options.groups, options.trials))
            maker.start()
            maker.join()
        print(head("command", "CPU time", "memory", "goal"), flush=True)
        met = []
        for name, words in commands(run, Path(scratch)):
            used = typed(words, Path(scratch))
            met.append(used.meets_goal)
            state = f"exit code {used.exit_code}" if used.exit_code else "met" if met[-1] else "missed"
            cells = (f"`{name}`", f"{used.cpu_seconds:.1f} s", f"{used.mebibytes:,.0f} MiB", state)
            print(row(*cells), flush=True)
    return 0 if all(met) else 1


def make(directory: Path, groups: int, trials: int) -> None:
    """Writes the journal of a run that never took place."""
    began = time.process_time()
    config = replace(CIFAR, limits=LimitsConfig(max_trials=trials))
    files = write_run(directory, config, Machine(groups=groups, devices_per_group=1))
    size, seconds = files.journal.stat().st_size / 1e6, time.process_time() - began
    print(f"{trials:,} trials in {groups:,} groups, {size:,.1f} MB, made in {seconds:.0f} s\n", flush=True)


def commands(run: Path, scratch: Path) -> Iterator[tuple[str, Sequence[object]]]:
    """Commands by name, each with its arguments."""
    packages = scratch / "packages"
    yield "validate", ["validate", run]  # first: without it, `score` ends with 2
    yield "score", ["score", run]
    yield "status", ["status", run]
    yield "report", ["report", run, "-o", scratch / "report.html"]
    yield "compare", ["compare", run, run]
    packages.mkdir()
    (scratch / "system.json").write_text(json.dumps(SYSTEM), encoding="utf-8")
    described = ["--system", scratch / "system.json", *CONTACT]
    yield "package", ["package", run, *described, "-o", packages / "run.tar.gz"]
    yield "rank", ["rank", packages, "-o", scratch / "ranking"]


def typed(words: Sequence[object], cache: Path) -> Used:
    """Types a command, whose own files are in the folder `cache`."""
    command = [sys.executable, "-m", "aiperf", *map(str, words)]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    _, status, used = os.wait4(os.posix_spawn(sys.executable, command, environment, file_actions=silent), 0)
    return Used(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


if __name__ == "__main__":
    sys.exit(main())
