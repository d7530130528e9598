"""The table and the figure of what `search.py` measured."""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from aiperf.errors import DataError
from aiperf.os_error import unreadable
from aiperf.tasks.language.tally import BITS_OF_A_BYTE
from benchmarks.script import head, row

UNPREPARED = "+unprepared"
ARMS = ("random", "evolution", "final", f"random{UNPREPARED}", f"evolution{UNPREPARED}")
TEXT_ARMS = ("random", "evolution", "3x96", "4x128", "4x192")
TEXT = "text"
NAMES = {
    "fashion": "Fashion-MNIST, 16 × 16",
    "cifar10": "CIFAR-10, 16 × 16",
    "digits": "digits, 16 × 16",
    "text": "the bundled text",
}
POINTS = 30  # of a line of the figure
TICKS = (1, 1.5, 2, 2.5, 3, 4, 6, 10, 15, 20, 30, 40, 60)


@dataclass(frozen=True)
class Result:
    """The result of one run."""

    data: str
    arm: str
    seed: int
    operations: int
    """Credited operations."""
    trials: int
    """Trials with a validation."""
    validation_error: float
    test_error: float
    growth: float
    """Operations of the best network per example, relative to the seed's."""
    lineage_operations: int
    """Operations credited along the best network's lineage."""
    curve: list[tuple[int, float]]
    """Each fall of the best validation error: the operations until then, and the error."""
    seconds: float
    """CPU time."""
    groups: int = 1
    regulated_score: float | None = None
    """In OPS of the virtual clock; None if the run was not of this bed."""
    gops: float | None = None
    """The operations that were asked for, in 1e9; None in lines of before."""
    folder: str | None = None
    """--folder as it was given, empty for a set that needs none; None in lines of before."""

    @property
    def key(self) -> tuple[str, str, int, int]:
        """What tells it from other runs of a file."""
        return self.data, self.arm, self.seed, self.groups


def read(path: Path) -> list[Result]:
    """The results in a file, one per line. Raises DataError for a line that is none."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise DataError(unreadable(error, path, "give a file of results")) from None
    return [_read_line(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]


def _read_line(line: str, where: str) -> Result:
    try:
        return Result(**json.loads(line))
    except (ValueError, TypeError) as error:
        raise DataError(f"{where}: no result of this benchmark ({error}); remove the line") from None


def table(results: list[Result]) -> Iterator[str]:
    """Medians over the seeds; in brackets the least and the greatest. The next column is the difference from
    random, relative to it: the mean over the seeds with a 95 % interval."""
    for data, groups in dict.fromkeys((result.data, result.groups) for result in results):
        here = [result for result in results if (result.data, result.groups) == (data, groups)]
        gops = statistics.median(result.operations for result in here) / 1e9
        shared = "" if groups == 1 else f", {groups} groups"
        yield f"\n{NAMES[data]}{shared}, {gops:,.0f} GOP per run\n"
        # What random ends with: how soon do the others have it?
        ends = [result.validation_error for result in here if result.arm == "random"]
        goal = statistics.median(ends) if ends else None
        errors = ("test, bits per byte", "validation") if data == TEXT else ("test error", "validation error")
        scored = () if data == TEXT else ("regulated score",)
        until = () if goal is None else (f"GOP to {_shown(data, goal)}",)
        columns = (errors[0], "from random's", errors[1], *scored, "trials", "lineage", "growth", *until)
        yield head("arm", "seeds", *columns)
        gained = _gains(here)
        arms = {each.arm for each in here}
        ours = [arm for arm in (TEXT_ARMS if data == TEXT else ARMS) if arm in arms]
        for arm in dict.fromkeys((*ours, *sorted(arms))):
            yield _row([result for result in here if result.arm == arm], gained(arm), goal)


def _shown(data: str, error: float) -> str:
    """An error as its task writes it."""
    return f"{BITS_OF_A_BYTE * error:.3f}" if data == TEXT else f"{error:.2%}"


def _gains(here: list[Result]) -> Callable[[str], str]:
    """The cells of the difference by arm: less than 0 is better than random."""
    against = {result.seed: result.test_error for result in here if result.arm == "random"}

    def text(arm: str) -> str:
        runs = [result for result in here if result.arm == arm and result.seed in against]
        if arm == "random" or not runs:
            return ""
        gains = [run.test_error / against[run.seed] - 1 for run in runs]
        if len(gains) == 1:
            return f"{gains[0]:+.1%}"
        low, high = interval(gains)
        less = sum(gain < 0 for gain in gains)
        return f"{statistics.mean(gains):+.1%} ({low:+.1%} to {high:+.1%}), less in {less} of {len(gains)}"

    return text


def _row(runs: list[Result], gained: str, goal: float | None) -> str:
    """The row of one arm, over its seeds."""
    data = runs[0].data
    errors = sorted(run.test_error for run in runs)
    low, middle, high = (_shown(data, each) for each in (errors[0], statistics.median(errors), errors[-1]))
    return row(
        runs[0].arm,
        len(runs),
        f"{middle} ({low} to {high})" if len(runs) > 1 else middle,
        gained,
        _shown(data, statistics.median(run.validation_error for run in runs)),
        *(() if data == TEXT else (_scores(runs),)),
        f"{statistics.median(run.trials for run in runs):.0f}",
        f"{statistics.median(run.lineage_operations / run.operations for run in runs):.0%}",
        f"x {statistics.median(run.growth for run in runs):.1f}",
        *(() if goal is None else (_until([run.curve for run in runs], goal),)),
    )


def _scores(runs: list[Result]) -> str:
    """The median regulated score."""
    scores = [run.regulated_score for run in runs if run.regulated_score is not None]
    return f"{statistics.median(scores) / 1e9:.1f} GOPS" if scores else "unknown"


def _until(curves: list[list[tuple[int, float]]], goal: float) -> str:
    """The median of the operations to that validation error, if most runs reached it; how many reached it."""
    reached = [next((at for at, error in curve if error <= goal), math.inf) for curve in curves]
    middle, had = statistics.median(reached), sum(at < math.inf for at in reached)
    return (
        f"{middle / 1e9:.0f} ({had} of {len(curves)})" if middle < math.inf else f"({had} of {len(curves)})"
    )


def interval(values: list[float]) -> tuple[float, float]:
    """The 95 % interval of the mean, by bootstrap over the seeds."""
    rng = random.Random(1)
    means = sorted(statistics.mean(rng.choices(values, k=len(values))) for _ in range(2000))
    return means[49], means[1949]


def figure(results: list[Result], path: Path) -> None:
    """Best validation error so far by operations: the median over the seeds of each arm."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "search"
    from matplotlib import pyplot
    from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

    sets = list(dict.fromkeys((result.data, result.groups) for result in results))
    drawing, axes = pyplot.subplots(1, len(sets), figsize=(5 * len(sets), 4), squeeze=False)
    for axis, (data, groups) in zip(axes[0], sets):
        here = [result for result in results if (result.data, result.groups) == (data, groups)]
        scale, unit = (BITS_OF_A_BYTE, "bits per byte") if data == TEXT else (100, "%")
        for arm in dict.fromkeys(result.arm for result in here):
            runs = [result for result in here if result.arm == arm]
            last = min(run.operations for run in runs)
            points = [last * (step + 1) / POINTS for step in range(POINTS)]
            lines = [[_at(run.curve, point) for run in runs] for point in points]
            x = [point / 1e9 for point in points]
            axis.plot(x, [scale * statistics.median(line) for line in lines], label=arm)
            axis.fill_between(
                x, [scale * min(line) for line in lines], [scale * max(line) for line in lines], alpha=0.08
            )
        axis.set(
            title=NAMES[data],
            xlabel="credited operations, GOP",
            ylabel=f"best validation error, {unit}",
            yscale="log",
        )
        axis.yaxis.set_major_locator(FixedLocator(TICKS))
        axis.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.yaxis.set_minor_locator(NullLocator())
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(fontsize="small", frameon=False)
    drawing.tight_layout()
    drawing.savefig(path, metadata={"Date": None})


def _at(curve: list[tuple[int, float]], operations: float) -> float:
    """The lowest error so far after this many operations; 1 before the first."""
    return min((error for at, error in curve if at <= operations), default=1.0)
