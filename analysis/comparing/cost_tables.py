"""What runs cost to reach an error, as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import inf

from aiperf.journal.mark import marked
from aiperf.wording import clock, figure, percent, scaled
from analysis.comparing.cost import CostStudy, RunCost, Spent
from analysis.comparing.spread import Summed, median, olympic, variation
from analysis.table import Cell, Table

TOGETHER: Mapping[str, Callable[[Sequence[float]], Summed]] = {
    "median": median,
    "olympic mean": olympic,
    "variation": variation,
}
"""Rows below those of several runs."""


def cost_table(found: CostStudy) -> Table:
    """A row for each run, up to the error; then, of several runs, what they come to together. The validation
    error is that of the validation that reached the error, otherwise the lowest one."""
    top5 = any(run.top5_error is not None for run in found.runs)
    columns = [
        *("run", "random seed", "reached", "validation error", "best network", "test error"),
        *(["top-5 error"] if top5 else []),
        *("epochs", "time", "hours", "node-hours"),
        *([found.price.unit] if found.price else []),
        *_energy_heads(found),
    ]
    rows = [_row(run, found, top5) for run in found.runs]
    if len(rows) > 1:
        rows += _together(found, before=7 if top5 else 6)
    figures = tuple(name not in ("run", "reached", "best network") for name in columns)
    return Table.of(columns, rows, figures)


def whole_table(found: CostStudy) -> Table:
    """What each run spent from its release to its end."""
    columns = ["run", "nodes", "devices", "epochs", "time", "hours", "node-hours"]
    columns += [*([found.price.unit] if found.price else []), *_energy_heads(found)]
    rows = [
        [
            marked(run.run, found.mark),
            (f"{run.nodes:,}", run.nodes),
            (f"{run.devices:,}", run.devices),
            *_amounts(run.whole, found),
        ]
        for run in found.runs
    ]
    return Table.of(columns, rows, (False, *[True] * (len(columns) - 1)))


def _energy_heads(found: CostStudy) -> list[str]:
    """The column of the energy and, with an intensity, that of the carbon, each with its level."""
    return [
        f"energy, {found.level.name}",
        *([f"CO2e, {found.level.name}"] if found.carbon is not None else []),
    ]


def _row(run: RunCost, found: CostStudy, top5: bool) -> list[Cell]:
    found_by = run.first or (run.falls[-1] if run.falls else None)
    error = found_by.error if found_by else None
    return [
        marked(run.run, found.mark),
        (str(run.random_seed), run.random_seed),
        run.why_not or f"trial {run.first.trial if run.first else 0}",
        ("none" if error is None else percent(error), error),
        "not tested" if run.tested is None else f"trial {run.tested}",
        ("not tested" if run.test_error is None else percent(run.test_error), run.test_error),
        *([(percent(run.top5_error), run.top5_error)] if top5 else []),
        *_amounts(run.to_error, found),
    ]


def _amounts(spent: Spent | None, found: CostStudy) -> list[Cell]:
    """Epochs, time, hours, node-hours, with a price the cost, energy, with an intensity the carbon."""
    if spent is None:
        return [("–", None)] * (4 + bool(found.price) + len(_energy_heads(found)))
    grams = found.grams(spent.joules)
    return [
        ("unknown" if spent.epochs is None else figure(spent.epochs), spent.epochs),
        (clock(spent.seconds), spent.seconds),
        (figure(spent.seconds / 3600), spent.seconds),
        (figure(spent.node_hours), spent.node_hours),
        *([(figure(spent.money), spent.money)] if spent.money is not None else []),
        ("unknown" if spent.joules is None else scaled(spent.joules, "J"), spent.joules),
        *([("unknown" if grams is None else scaled(grams, "g"), grams)] if found.carbon is not None else []),
    ]


def _together(found: CostStudy, before: int) -> Iterator[list[Cell]]:
    """The rows of all runs together: the median, the olympic mean, the variation. The first `before` columns
    have no such figure."""
    each = [run.to_error for run in found.runs]
    seconds = [inf if one is None else one.seconds for one in each]
    columns: list[tuple[list[float] | None, Callable[[float], str]]] = [
        (_all_known([inf if one is None else one.epochs for one in each]), figure),
        (seconds, clock),
        ([value / 3600 for value in seconds], figure),
        ([inf if one is None else one.node_hours for one in each], figure),
    ]
    if found.price is not None:
        columns.append(([inf if one is None else found.price.money(one.node_hours) for one in each], figure))
    joules = [inf if one is None else one.joules for one in each]
    columns.append((_all_known(joules), partial(scaled, unit="J")))
    if found.carbon is not None:
        grams = [inf if one is None else found.grams(one.joules) for one in each]
        columns.append((_all_known(grams), partial(scaled, unit="g")))
    for name, reading in TOGETHER.items():
        cells = [
            _cell(reading, values, percent if reading is variation else text) for values, text in columns
        ]
        yield [name, *[""] * (before - 1), *cells]


def _all_known(values: Sequence[float | None]) -> list[float] | None:
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else None


def _cell(
    reading: Callable[[Sequence[float]], Summed],
    values: Sequence[float] | None,
    text: Callable[[float], str],
) -> str:
    if values is None:
        return "unknown"
    result = reading(values)
    return result.why_not if result.value is None else text(result.value)
