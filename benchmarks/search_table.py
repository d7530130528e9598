"""The table and the figure of what `search.py` measured."""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ARMS = (
    *("continued", "restarted", "random", "evolution", "bayesian"),
    *("random-anew", "evolution-anew", "bayesian-anew"),
    *("evolution+nni", "evolution+optuna", "bayesian+nni", "evolution+halving", "foresight"),
    *("slow evolution", "slow evolution+nni"),
)
NAMES = {"digits": "digits", "fashion": "Fashion-MNIST", "text": "the bundled text"}
REFERENCE = "evolution-anew"
POINTS = 30  # of a line of the figure
TICKS = (1, 2, 3, 4, 6, 10, 15, 20, 30, 40, 60)  # percent
DRAWN = ("continued", "restarted", "random", "evolution", "bayesian", "evolution-anew")


@dataclass(frozen=True)
class Result:
    """Of one run."""

    data: str
    arm: str
    seed: int
    operations: int
    """Credited."""
    trials: int
    validation_error: float
    test_error: float
    growth: float
    """Operations of the best network for an image, over the seed's."""
    lineage_operations: int
    """Credited along the best network's lineage."""
    curve: list[tuple[int, float]]
    """After so many operations the best validation error fell to this."""
    seconds: float


def read(path: Path) -> list[Result]:
    return [Result(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def table(results: list[Result]) -> Iterator[str]:
    """Medians over the seeds; in brackets the least and the greatest, and of the difference to evolution
    a 95 % interval of its median by bootstrap over seeds."""
    for data in dict.fromkeys(result.data for result in results):
        here = [result for result in results if result.data == data]
        gops = statistics.median(result.operations for result in here) / 1e9
        yield f"\n{NAMES[data]}, {gops:,.0f} GOP a run\n"
        # What networks from new weights end with: how soon do the others have it?
        anew = [result.validation_error for result in here if result.arm == REFERENCE]
        goal = statistics.median(anew) if anew else 0.1
        columns = "test error | less than evolution's | validation error | trials | lineage | growth"
        yield f"| arm | seeds | {columns} | GOP to {goal:.2%} |"
        yield "|-|-|-|-|-|-|-|-|-|"
        against = {result.seed: result.test_error for result in here if result.arm == "evolution"}
        for arm in [arm for arm in ARMS if any(result.arm == arm for result in here)]:
            yield _row([result for result in here if result.arm == arm], against, goal)


def _row(runs: list[Result], against: Mapping[int, float], goal: float) -> str:
    errors = sorted(run.test_error for run in runs)
    gains = [against[run.seed] - run.test_error for run in runs if run.seed in against]
    low, high = interval(gains) if gains else (0.0, 0.0)
    gain = f"{statistics.median(gains):+.2%} ({low:+.2%} to {high:+.2%})" if gains else ""
    return (
        "| "
        + " | ".join(
            [
                runs[0].arm,
                str(len(runs)),
                f"{statistics.median(errors):.2%} ({errors[0]:.2%} to {errors[-1]:.2%})",
                "" if runs[0].arm == "evolution" else gain,
                f"{statistics.median(run.validation_error for run in runs):.2%}",
                f"{statistics.median(run.trials for run in runs):.0f}",
                f"{statistics.median(run.lineage_operations / run.operations for run in runs):.0%}",
                f"x {statistics.median(run.growth for run in runs):.1f}",
                _until([run.curve for run in runs], goal),
            ]
        )
        + " |"
    )


def _until(curves: list[list[tuple[int, float]]], goal: float) -> str:
    """The median of the operations to that validation error, where most runs had it; how many had it."""
    reached = [next((at for at, error in curve if error <= goal), math.inf) for curve in curves]
    middle, had = statistics.median(reached), sum(at < math.inf for at in reached)
    return (
        f"{middle / 1e9:.0f} ({had} of {len(curves)})" if middle < math.inf else f"({had} of {len(curves)})"
    )


def interval(values: list[float]) -> tuple[float, float]:
    """95 % of the median, by drawing the seeds again."""
    rng = random.Random(1)
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(2000))
    return medians[49], medians[1949]


def figure(results: list[Result], path: Path) -> None:
    """Best validation error so far by operations: the median over the seeds of each arm."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "search"
    from matplotlib import pyplot
    from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

    sets = list(dict.fromkeys(result.data for result in results))
    drawing, axes = pyplot.subplots(1, len(sets), figsize=(5 * len(sets), 4), squeeze=False)
    for axis, data in zip(axes[0], sets):
        for arm in DRAWN:
            runs = [result for result in results if (result.data, result.arm) == (data, arm)]
            if not runs:
                continue
            last = min(run.operations for run in runs)
            points = [last * (step + 1) / POINTS for step in range(POINTS)]
            lines = [[_at(run.curve, point) for run in runs] for point in points]
            x = [point / 1e9 for point in points]
            axis.plot(x, [100 * statistics.median(line) for line in lines], label=arm)
            axis.fill_between(
                x, [100 * min(line) for line in lines], [100 * max(line) for line in lines], alpha=0.08
            )
        axis.set(
            title=NAMES[data],
            xlabel="credited operations, GOP",
            ylabel="best validation error, %",
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
    return min((error for at, error in curve if at <= operations), default=1.0)
