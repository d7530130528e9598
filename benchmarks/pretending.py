"""The real path of a run under load: N groups that only pretend to train, on this one host.

    python benchmarks/pretending.py 16 64 128 512 [--link mpi] [--minutes 1] [--preset FILE] [--pretend NAME]

N + 1 processes are started as torchrun would start them, which needs no MPI, or by mpiexec; each is the whole
command. With --link fork they talk through sockets, too, and are copies of this process, which has imported
everything: on two cores 513 Pythons would import for minutes. Printed: the share of the time that was work,
messages and lines of the journal a second, how long it took until all were ready, and the processor time
and memory of the master and of a rank.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
import uuid
from dataclasses import dataclass, replace
from datetime import datetime
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
from aiperf.score.credit import credit
from aiperf.score.lineage import recount
from aiperf.score.score import score
from analysis.readings.occupancy import occupancy
from tests.mpi.load.pretended import busy_shares

PROGRAM = "from aiperf.start import main; raise SystemExit(main())"
LOOK_SECONDS = 2.0  # between two looks at memory and processor time: they cost some themselves
QUIET = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Used:
    """By processes, until the last look at them."""

    began: float
    """Time of day."""
    wall_seconds: float = 0.0
    master_seconds: float = 0.0
    """Of processor."""
    span_seconds: float = 0.0
    """The same, since the clock runs."""
    rank_seconds: float = 0.0
    """The median of all ranks but the master."""
    master_bytes: float = 0.0
    rank_bytes: float = 0.0
    """Of one's own: what ranks share, as the text of libraries, is not in it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("groups", type=int, nargs="+")
    parser.add_argument("--link", choices=("sockets", "fork", "mpi"), default="sockets")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--preset", default="digits")
    parser.add_argument("--pretend", default="laptop")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--directory", type=Path, help="keep the runs there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for groups in options.groups:
            directory = (options.directory or Path(scratch)) / f"{groups}-{options.link}"
            words = ["run", "--pretend", options.pretend, "--preset", options.preset]
            words += ["--minutes", str(options.minutes), "--devices-per-trial", "1"]
            words += [word for setting in options.settings for word in ("--set", setting)]
            used = run(groups, options.link, [*words, "--directory", str(directory)], directory)
            show(groups, directory, used)


def run(groups: int, link: str, words: list[str], directory: Path) -> Used:
    """The run itself, and what it took. Ends this program when the run fails."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    directory.parent.mkdir(parents=True, exist_ok=True)
    began, released = time.time(), None
    with directory.with_suffix(".out").open("wb") as output:
        starting = {"sockets": by_sockets, "fork": by_fork, "mpi": by_mpi}[link]
        started = starting(groups + 1, words, output.fileno())
        used = Used(began)
        try:
            while started[0].poll() is None:
                time.sleep(LOOK_SECONDS)
                seen = looked(started, words) or {}  # of one that has just ended, no memory
                used = replace(used, **{name: max(getattr(used, name), seen[name]) for name in seen})
                if released is None and is_released(directory):
                    released = used.master_seconds
        except BaseException:
            for process in started:
                process.kill()
            raise
        finally:
            for process in started:
                process.wait()
    if not RunFiles(directory).journal.exists():
        sys.exit(f"the run failed; see {directory.with_suffix('.out')}")
    spent = used.master_seconds - (released or 0.0)
    return replace(used, wall_seconds=time.time() - began, span_seconds=spent)


def is_released(directory: Path) -> bool:
    journal = RunFiles(directory).journal
    return journal.exists() and b'"Released"' in journal.read_bytes()


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


Started = Forked | subprocess.Popen[bytes]


def as_torchrun(size: int) -> list[dict[str, str]]:
    """The variables that it sets for each rank."""
    shared = QUIET | {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "MASTER_PORT": "0"}
    shared["TORCHELASTIC_RUN_ID"] = uuid.uuid4().hex[:8]
    return [shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(size)]


def by_fork(size: int, words: list[str], output: int) -> list[Started]:
    sys.stdout.flush()
    return [Forked(words, environment, output) for environment in as_torchrun(size)]


def by_sockets(size: int, words: list[str], output: int) -> list[Started]:
    return [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *words],
            env=os.environ | environment,
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
        )
        for environment in as_torchrun(size)
    ]


def by_mpi(size: int, words: list[str], output: int) -> list[Started]:
    """By the mpiexec of this interpreter's environment, an Open MPI."""
    mpiexec = [str(Path(sys.executable).parent / "mpiexec"), "-n", str(size)]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = [*mpiexec, "--oversubscribe", "--bind-to", "none", sys.executable, "-c", PROGRAM, *words]
    return [subprocess.Popen(command, env=os.environ | QUIET | root, stdout=output, stderr=output)]


def looked(started: list[Started], words: list[str]) -> dict[str, float] | None:
    """At the ranks: fields of Used; None when one of them is gone meanwhile."""
    try:
        ranks = [psutil.Process(process.pid) for process in started]
        if len(ranks) == 1:
            below = [each for each in ranks[0].children(recursive=True) if words[-1] in each.cmdline()]
            ranks = sorted(below, key=lambda each: int(each.environ()["OMPI_COMM_WORLD_RANK"]))
        seconds = [sum(each.cpu_times()[:2]) for each in ranks]
        chosen = ranks[:: max(1, len(ranks) // 8)]  # to add up the pages of one takes milliseconds
        own = [each.memory_full_info().uss for each in chosen]
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None
    if len(ranks) < 2:
        return None
    return {
        "master_seconds": seconds[0],
        "rank_seconds": statistics.median(seconds[1:]),
        "master_bytes": own[0],
        "rank_bytes": statistics.median(own[1:] or own),
    }


def show(groups: int, directory: Path, used: Used) -> None:
    files = RunFiles(directory)
    replay = replayed(read_journal(files.journal))
    seen = occupancy(replay, credit(replay))
    busy = np.array(list(busy_shares(replay).values()))
    span, leg = replay.span_seconds, replay.leg
    assert leg.released is not None
    first_line = datetime.fromisoformat(leg.began.started).timestamp() - used.began
    messages = len(replay.blocks) + sum(len(each.validations) + 2 for each in replay.attempts)
    waits = [seen.shares[name] for name in ("prepare", "wait")]
    print(
        f"{groups:,} groups, {span:.0f} s: busy {np.mean(busy):.2%}, the idlest {np.min(busy):.2%} "
        f"(prepare {waits[0]:.2%}, wait {waits[1]:.2%})\n"
        f"    {messages / span:,.1f} messages/s, {len(replay.attempts) / span:,.2f} trials/s, "
        f"journal {replay.lines / span:,.1f} lines/s, {files.journal.stat().st_size / 1e6:,.2f} MB\n"
        f"    all connected after {first_line:.1f} s, clock after {first_line + leg.released:.1f} s, "
        f"end after {used.wall_seconds:.1f} s\n"
        f"    processor: master {used.master_seconds:.1f} s "
        f"({1e6 * used.span_seconds / messages:,.0f} us a message), a rank {used.rank_seconds:.2f} s; "
        f"memory: master {used.master_bytes / 2**20:.0f} MiB, a rank {used.rank_bytes / 2**20:.0f} MiB\n"
        f"    {integrity(replay, files)}",
        flush=True,
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
