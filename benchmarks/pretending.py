"""The real path of a run under load: N groups that only pretend to train, on this one host.

    python -m benchmarks.pretending 16 64 128 512 --minutes 1.5 --set "training.epochs=[40]"

N + 1 ranks talk through sockets, as those that torchrun starts, which needs no MPI. Each runs the whole
command in a copy of this process, which has imported everything: on two cores 513 Pythons would import for
minutes. Prints the table of docs/scaling.md, and below it whether counts, proposals, the ranks' own logs and
the journal agree.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import psutil

from aiperf.commands.main import main as command_of_aiperf
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.rules.rule import Kind
from aiperf.rules.verdict import judge
from aiperf.score.lineage import recount
from aiperf.score.score import score
from analysis.readings.judgement import read_run
from benchmarks.script import head, row, torchrun_variables
from tests.mpi.busy_shares import busy_shares

LOOK_SECONDS = 2.0  # between two looks at memory and processor time: they cost some themselves
QUIET = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Used:
    """What the processes used until the last look at them."""

    master_seconds: float = 0.0
    """CPU time of the master."""
    rank_seconds: float = 0.0
    """CPU time of a rank: the median of all but the master."""
    master_bytes: float = 0.0
    rank_bytes: float = 0.0
    """Memory of a rank alone, as of the master: what ranks share, such as the code of libraries, is not in
    it."""


COLUMNS = (
    *("groups", "busy", "least busy group", "messages/s", "trials/s", "lines/s", "clock starts after"),
    *("master: CPU time", "memory", "a rank: CPU time", "memory"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("groups", type=int, nargs="+")
    parser.add_argument("--minutes", type=float, default=1.5)
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--directory", type=Path, help="keep the runs there")
    options = parser.parse_args()
    print(head(*COLUMNS), flush=True)
    agreements = []
    with tempfile.TemporaryDirectory() as scratch:
        for groups in options.groups:
            directory = (options.directory or Path(scratch)) / str(groups)
            words = ["run", "--pretend", "laptop", "--minutes", str(options.minutes)]
            words += ["--devices-per-trial", "1", "--directory", str(directory)]
            words += [word for setting in options.settings for word in ("--set", setting)]
            used = run(groups, words, directory)
            files = RunFiles(directory)
            replay = read_run(files)
            print(row(*cells(groups, replay, used)), flush=True)
            agreements.append(f"{groups} groups: {integrity(replay, files)}")
    print("\n" + "\n".join(agreements))


def run(groups: int, words: list[str], directory: Path) -> Used:
    """Makes the run, and returns what it used. Ends this program if the run fails."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_suffix(".out").open("wb") as output:
        ranks = torchrun_variables(groups + 1, uuid.uuid4().hex[:8])
        each = ((words, QUIET | variables, output.fileno()) for variables in ranks)
        started = [get_context("fork").Process(target=_rank, args=arguments) for arguments in each]
        used = Used()
        try:
            for process in started:
                process.start()
            while started[0].is_alive():
                time.sleep(LOOK_SECONDS)
                seen = looked(started) or {}  # of one that has just ended, no memory
                used = replace(used, **{name: max(getattr(used, name), seen[name]) for name in seen})
        except BaseException:
            for process in started:
                if process.pid is not None:  # else it was not started
                    process.kill()
            raise
        for process in started:
            process.join()
    if not RunFiles(directory).journal.exists():
        sys.exit(f"the run failed; see {directory.with_suffix('.out')}")
    return used


def _rank(words: list[str], variables: Mapping[str, str], output: int) -> None:
    """Runs the command as one rank, in a copy of this process."""
    os.environ.update(variables)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.argv = ["aiperf-hpc", *words]
    sys.exit(command_of_aiperf())


def looked(started: Sequence[BaseProcess]) -> dict[str, float] | None:
    """A look at the ranks, as fields of `Used`; None if one of them has ended meanwhile."""
    try:
        ranks = [psutil.Process(process.pid) for process in started]
        seconds = [sum(each.cpu_times()[:2]) for each in ranks]
        chosen = ranks[:: max(1, len(ranks) // 8)]  # to add up the pages of one takes milliseconds
        own = [each.memory_full_info().uss for each in chosen]
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None
    return {
        "master_seconds": seconds[0],
        "rank_seconds": statistics.median(seconds[1:]),
        "master_bytes": own[0],
        "rank_bytes": statistics.median(own[1:]),
    }


def cells(groups: int, replay: Replay, used: Used) -> tuple[str, ...]:
    """A row of the table, by COLUMNS."""
    busy = np.array(list(busy_shares(replay).values()))
    span = replay.span_seconds
    assert replay.leg.released is not None
    messages = len(replay.blocks) + sum(len(each.validations) + 2 for each in replay.attempts)
    return (
        f"{groups:,}",
        f"{100 * np.mean(busy):.2f} %",
        f"{100 * np.min(busy):.2f} %",
        f"{messages / span:,.3g}",
        f"{len(replay.attempts) / span:,.1f}",
        f"{replay.lines / span:,.0f}",
        f"{replay.leg.released:.1f} s",
        f"{used.master_seconds:.1f} s",
        f"{used.master_bytes / 2**20:.0f} MiB",
        f"{used.rank_seconds:.2f} s",
        f"{used.rank_bytes / 2**20:.0f} MiB",
    )


def integrity(replay: Replay, files: RunFiles) -> str:
    """Whether counts, proposals, the ranks' own logs and the journal agree."""
    verdict = judge(replay, files)
    failed = ", ".join(finding.rule for finding in verdict.failed(Kind.INTEGRITY)) or "none"
    (own,) = (finding.text for finding in verdict.findings if finding.rule == "witnesses")
    operations = score(replay, recount(replay).counts).goodput.tensor_operations
    return f"{operations:,} operations credited; {own}; rules of integrity that failed: {failed}"


if __name__ == "__main__":
    main()
