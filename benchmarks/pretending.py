"""The real path of a run under load: N groups that only pretend to train, on this one host.

    PYTHONPATH=. python benchmarks/pretending.py 16 64 128 512 --minutes 1.5 --set "training.epochs=[40]"

N + 1 ranks talk through sockets, as those that torchrun starts, which needs no MPI. Each runs the whole
command in a copy of this process, which has imported everything: on two cores 513 Pythons would import for
minutes. Prints the table of docs/scaling.md, and below it whether counts, proposals, the ranks' own logs and
the journal agree.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import statistics
import sys
import tempfile
import time
import traceback
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import psutil

from aiperf.commands.main import main as command_of_aiperf
from aiperf.files import RunFiles
from aiperf.journal.file import read_journal
from aiperf.journal.replay import Replay
from aiperf.journal.replay import replay as replayed
from aiperf.rules.rule import Kind
from aiperf.rules.verdict import judge
from aiperf.score.lineage import recount
from aiperf.score.score import score
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
    print(f"| {' | '.join(COLUMNS)} |\n|{'-:|' * len(COLUMNS)}", flush=True)
    agreements = []
    with tempfile.TemporaryDirectory() as scratch:
        for groups in options.groups:
            directory = (options.directory or Path(scratch)) / str(groups)
            words = ["run", "--pretend", "laptop", "--minutes", str(options.minutes)]
            words += ["--devices-per-trial", "1", "--directory", str(directory)]
            words += [word for setting in options.settings for word in ("--set", setting)]
            used = run(groups, words, directory)
            files = RunFiles(directory)
            replay = replayed(read_journal(files.journal))
            print(row(groups, replay, used), flush=True)
            agreements.append(f"{groups} groups: {integrity(replay, files)}")
    print("\n" + "\n".join(agreements))


def run(groups: int, words: list[str], directory: Path) -> Used:
    """Makes the run, and returns what it used. Ends this program if the run fails."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_suffix(".out").open("wb") as output:
        sys.stdout.flush()
        started = [Forked(words, environment, output.fileno()) for environment in as_torchrun(groups + 1)]
        used = Used()
        try:
            while started[0].poll() is None:
                time.sleep(LOOK_SECONDS)
                seen = looked(started) or {}  # of one that has just ended, no memory
                used = replace(used, **{name: max(getattr(used, name), seen[name]) for name in seen})
        except BaseException:
            for process in started:
                process.kill()
            raise
        finally:
            for process in started:
                process.wait()
    if not RunFiles(directory).journal.exists():
        sys.exit(f"the run failed; see {directory.with_suffix('.out')}")
    return used


class Forked:
    """A copy of this process, which runs the command."""

    def __init__(self, words: list[str], environment: dict[str, str], output: int) -> None:
        self.code: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            os.environ.update(environment)
            os.dup2(output, 1)
            os.dup2(output, 2)
            sys.argv = ["aiperf-hpc", *words]
            code = 1
            try:
                code = command_of_aiperf()
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(code)

    def poll(self) -> int | None:
        if self.code is None and os.waitpid(self.pid, os.WNOHANG)[0]:
            self.code = 0
        return self.code

    def wait(self) -> int:
        while self.poll() is None:
            time.sleep(0.01)
        return 0

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def as_torchrun(size: int) -> list[dict[str, str]]:
    """The variables that torchrun sets for each rank."""
    shared = QUIET | {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "MASTER_PORT": "0"}
    shared["TORCHELASTIC_RUN_ID"] = uuid.uuid4().hex[:8]
    return [shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(size)]


def looked(started: list[Forked]) -> dict[str, float] | None:
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


def row(groups: int, replay: Replay, used: Used) -> str:
    busy = np.array(list(busy_shares(replay).values()))
    span = replay.span_seconds
    assert replay.leg.released is not None
    messages = len(replay.blocks) + sum(len(each.validations) + 2 for each in replay.attempts)
    cells = (
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
    return f"| {' | '.join(cells)} |"


def integrity(replay: Replay, files: RunFiles) -> str:
    """Whether counts, proposals, the ranks' own logs and the journal agree."""
    verdict = judge(replay, files)
    failed = ", ".join(finding.rule for finding in verdict.failed(Kind.INTEGRITY)) or "none"
    (own,) = (finding.text for finding in verdict.findings if finding.rule == "witnesses")
    operations = score(replay, recount(replay).counts).goodput.tensor_operations
    return f"{operations:,} operations credited; {own}; rules of integrity that failed: {failed}"


if __name__ == "__main__":
    main()
