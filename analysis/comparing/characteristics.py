"""Operations, parameters, arithmetic intensity and epochs to an error of trials, and how far they spread.

After AIBench Training (Tang et al., ISPASS 2021): docs/beyond.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor

from aiperf.journal.replay import Replay
from aiperf.score.example_counts import counted
from aiperf.score.rungs import controls_of
from aiperf.tasks.registry import task_of
from aiperf.tasks.task import Task
from aiperf.wording import figure, percent
from analysis.comparing.spread import variation
from analysis.readings.roofline import intensity
from analysis.readings.trial_rows import TrialRow
from analysis.table import Cell, Table
from nas.frozen import frozen
from nas.ops import OPS


@dataclass(frozen=True, slots=True)  # a long run has a hundred thousand of them
class Trained:
    """A trial whose architecture could be counted."""

    run: str
    """Name of its run; empty if there is only one run."""
    row: TrialRow
    """What else is known of the trial."""
    operations: int
    parameters: int
    epochs: float | None
    """Epochs until the error was reached; None if it was not."""


def trained(runs: Sequence[tuple[str, Sequence[TrialRow]]], error: float) -> list[Trained]:
    """Those trials that have all figures of the table: counted, and validated at least once."""
    return [
        Trained(name, row, row.operations, row.parameters, row.epochs_to(error))
        for name, found in runs
        for row in found
        if row.operations is not None and row.parameters is not None and row.error is not None
    ]


def thirds(found: Sequence[Trained]) -> list[tuple[float, float]]:
    """The least and the greatest number of epochs of each part: up to three, as equal as the values allow."""
    values = sorted(one.epochs for one in found if one.epochs is not None)
    # Parts of equal number; equal values stay in one part, so a part may be smaller or empty.
    cuts = [round(part * len(values) / 3) for part in range(4)]
    found_parts: list[tuple[float, float]] = []
    for begin, end in pairwise(cuts):
        above = [value for value in values[begin:end] if not found_parts or value > found_parts[-1][1]]
        if above:
            found_parts.append((above[0], above[-1]))
    return found_parts


@frozen
class ControlNetworkCost:
    """What one training example of the control network costs, counted as those of the trials are."""

    name: str
    """With the size of its examples, as "ResNet-50 v1.5 at 224²"."""
    short: str
    """The name without the size, for a figure."""
    operations: int
    parameters: int
    intensity: float | None
    """Tensor operations per byte moved, by the model of `roofline`."""


def control_cost(replay: Replay) -> ControlNetworkCost | None:
    """The cost of the largest network and examples that a rank measured; None if none did."""
    controls = controls_of(replay)
    if not controls:
        return None
    # The control of the task comes before a smaller network, however large its examples are.
    largest = max(controls.values(), key=lambda c: (not c.network, c.size, c.batch_size))
    network = task_of(replay.opened.config.data).control.named(largest.network)
    found, format_ = counted(network.graph(largest.size)), replay.opened.config.training.format
    return ControlNetworkCost(
        name=f"{network.name} at {network.at([largest.size])}",
        short=network.short,
        operations=found.train.price(OPS),
        parameters=found.parameters,
        intensity=intensity(found, format_, largest.batch_size),
    )


def spread_table(
    found: Sequence[Trained], error: float, task: Task, control: ControlNetworkCost | None
) -> Table:
    """The spread of the trials, and the control."""
    whole = "{:,.0f}".format
    intensities = [one.row.intensity for one in found if one.row.intensity is not None]
    columns: list[tuple[Sequence[float], Callable[[float], str]]] = [
        ([one.operations for one in found], whole),
        ([one.parameters for one in found], whole),
        (intensities, figure),
        ([one.epochs for one in found if one.epochs is not None], figure),
    ]
    parts = {"minimum": 0.0, "25th percentile": 0.25, "median": 0.5, "75th percentile": 0.75, "maximum": 1.0}
    rows: list[list[Cell]] = [
        [name, *(_cell(_quantile(part, values) if values else None, text) for values, text in columns)]
        for name, part in parts.items()
    ]
    spreads = [variation(values).value if values else None for values, _ in columns]
    rows.append(["coefficient of variation", *(_cell(spread, percent) for spread in spreads)])
    rows.append(["trials", *(_cell(len(values), whole) for values, _ in columns)])
    if control is not None:
        costs = (control.operations, control.parameters, control.intensity)
        own = (_cell(value, text) for value, (_, text) in zip(costs, columns))
        rows.append([f"control, {control.name}", *own, ""])
    head = (f"operations per training {task.example}", "parameters", "tensor operations per byte")
    return Table.of(("", *head, f"epochs to {percent(error)}"), rows, (False, *[True] * 4))


def _cell(value: float | None, text: Callable[[float], str]) -> Cell:
    """A cell that is sorted by its value."""
    return "unknown" if value is None else (text(value), value)


def _quantile(part: float, values: Sequence[float]) -> float:
    """The quantile, interpolated between two values in proportion."""
    ordered, place = sorted(values), part * (len(values) - 1)
    low, high = ordered[floor(place)], ordered[ceil(place)]
    return low + (high - low) * (place - floor(place))
