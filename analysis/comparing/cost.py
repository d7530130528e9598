"""What it took to reach an error: time, node-hours, money and energy, of one run or of several.

The time to an error is DAWNBench's (Coleman et al., "DAWNBench", NIPS ML Systems Workshop, 2017): up to the
first moment at which it is reached. How several runs become one figure is the rule of MLPerf Training and the
measure of AIBench: docs/beyond.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf

from aiperf.journal.mark import Mark, mark_of, marked
from aiperf.rules.ending import Answer
from aiperf.wording import clock, counted, figure, percent, plain, scaled
from analysis.comparing.comparability import MixedError, refuse_twice, refuse_unlike
from analysis.comparing.spread import LEAST_RUNS, Summed, median, olympic, variation
from analysis.readings import run_tables
from analysis.readings.energy import Level, energy_at, read_energy
from analysis.readings.hosts import num_nodes
from analysis.readings.judgement import Judged
from analysis.readings.progress import Fall, epochs_until, falls, node_hours
from analysis.readings.robust import all_known
from analysis.readings.score_figures import num_devices, task_of_run
from analysis.table import Cell, Table
from launch.price import Price
from nas.frozen import frozen

NOT_REACHED, NOT_TESTED, NOT_IN_THE_TEST = "not reached", "not tested", "not reached in the test"
_SAID: Mapping[str, str] = {
    "": "reached",
    NOT_REACHED: "not reached",
    NOT_TESTED: "reached in a validation; no network was tested",
    NOT_IN_THE_TEST: "reached in a validation, and not in the test",
}
REACHED = (
    "Reached means that a validation found it at that time, and that the one test after the span agrees. "
    "Costs are of all nodes from the start of the clock until then, busy or idle."
)


@frozen
class Spent:
    """What all nodes of a run spent from its release up to a moment, whether they worked or waited."""

    seconds: float
    """Length of that time, in seconds of the span."""
    node_hours: float
    """Nodes times hours."""
    money: float | None
    """Cost in the currency of the price; None if no price was given."""
    joules: float | None
    """Energy of the level of the study; None if it is not known."""
    epochs: float | None
    """Passes over the training examples by all networks of the search; None where it is not known."""


@frozen
class RunCost:
    """What one run spent to reach an error. None: not known, or not reached."""

    run: str
    random_seed: int
    nodes: int
    """Most hosts in one leg, that of the master among them."""
    devices: int
    falls: Sequence[Fall]
    """Each fall of the best validation error, in the order of time."""
    first: Fall | None
    """The first validation that found the error, or a lower one."""
    tested: int | None
    """Number of the trial with the best network, tested once, after the span. Another trial may have
    reached the error first."""
    test_error: float | None
    """Test error of that network."""
    top5_error: float | None
    why_not: str
    """Why the error is not reached; empty where it is, in a validation and in the test."""
    spent: Spent | None
    """What was spent up to `first`."""
    whole: Spent
    """What was spent up to the end of the run."""
    verdict: str
    """The verdict and the class of the run, in words."""

    @property
    def is_reached(self) -> bool:
        """Whether a validation found the error and the test agrees."""
        return not self.why_not

    @property
    def to_error(self) -> Spent | None:
        """What was spent to reach the error; None if it was not reached."""
        return self.spent if self.is_reached else None


@frozen
class CostStudy:
    """What several runs of one kind spent to reach one error."""

    runs: Sequence[RunCost]
    error: float
    """The error to reach, from 0 to 1."""
    error_text: str
    """The same as its task writes it: per cent, or bits per byte."""
    price: Price | None
    mark: Mark | None
    """The mark that all runs share; None if they were measured."""
    masters_known: bool
    """Whether every journal names the master's node."""
    level: Level = Level.L0
    """What the energy of every run includes."""
    carbon: float | None = None
    """Grams of CO2 equivalents per kilowatt-hour, as the user states them; no default is known."""

    def grams(self, joules: float | None) -> float | None:
        """CO2 equivalents of an energy in grams; None if it or the intensity is not known."""
        return None if joules is None or self.carbon is None else joules / 3.6e6 * self.carbon

    @property
    def reached(self) -> Sequence[RunCost]:
        """The runs that reached the error."""
        return [run for run in self.runs if run.is_reached]


def cost(
    runs: Sequence[Judged],
    error: float,
    price: Price | None,
    level: Level = Level.L0,
    carbon: float | None = None,
) -> CostStudy:
    """Raises MixedError, which names the difference, for runs that are not of one kind and size."""
    refuse_twice(runs)
    for other in runs[1:]:
        refuse_unlike(runs[0], other)
    found = [_of_run(run, error, price, level) for run in runs]
    for run, one in zip(runs, found):
        sizes = [
            f"{counted(each.nodes, 'node')} and {counted(each.devices, 'device')}" for each in (found[0], one)
        ]
        if sizes[0] != sizes[1]:
            raise MixedError(
                f"{run.files.directory} has {sizes[1]} and {runs[0].files.directory} has "
                f"{sizes[0]}; their times make no mean, look at each alone"
            )
    text = task_of_run(runs[0].replay).error_text(error)
    # Older journals do not name the master's host, which may be a node of its own.
    known = all(leg.began.host for run in runs for leg in run.replay.timed_legs)
    mark = mark_of(runs[0].replay.opened.origin)
    return CostStudy(found, error, text, price, mark, known, level, carbon)


def _of_run(run: Judged, error: float, price: Price | None, level: Level) -> RunCost:
    """The cost of one run."""
    replay = run.replay
    found = falls(replay)
    first = next((fall for fall in found if fall.error <= error), None)
    tested = replay.tested
    test_error = None if tested is None else tested.tally.error
    return RunCost(
        run=replay.opened.run_id,
        random_seed=replay.opened.config.random_seed,
        nodes=num_nodes(replay),
        devices=num_devices(replay),
        falls=found,
        first=first,
        tested=None if tested is None else tested.trial,
        test_error=test_error,
        top5_error=None if tested is None else tested.top5_error,
        why_not=_why_not(first, test_error, error),
        spent=None if first is None else _spent(run, first.seconds, price, level),
        whole=_spent(run, replay.span_seconds, price, level),
        verdict=run_tables.verdict_and_class(run.verdict, run.validated),
    )


def _why_not(first: Fall | None, test_error: float | None, error: float) -> str:
    """The reason why the error does not count as reached. A validation alone is not enough: the search has
    chosen by it, so the best of many validations is lower than the network's error is."""
    if first is None:
        return NOT_REACHED
    if test_error is None:
        return NOT_TESTED
    return "" if test_error <= error else NOT_IN_THE_TEST


def _spent(run: Judged, seconds: float, price: Price | None, level: Level) -> Spent:
    """All nodes are paid for and powered from the release on, so what is spent depends on the time alone."""
    hours = node_hours(run.replay, seconds)
    # Of exactly this level: another one would include more or less of the machine.
    joules = energy_at(level, read_energy(run.files, run.replay, seconds)).joules
    epochs = epochs_until(run.replay)(seconds)
    return Spent(seconds, hours, price.money(hours) if price else None, joules, epochs)


def cost_text(found: CostStudy) -> list[str]:
    """The sentences that a reader needs before the figures."""
    num, reached = len(found.runs), len(found.reached)
    if num == 1:
        lines = [f"An error of {found.error_text} was {_SAID[found.runs[0].why_not]}."]
    else:
        lines = [f"An error of {found.error_text} was reached in {reached:,} of {num:,} runs."]
    lines.append(REACHED)
    if found.carbon is not None:
        lines.append(f"Carbon intensity: {found.carbon:g} g of CO2 equivalents per kWh, as it was given.")
    lines.append(f"Price: {found.price}." if found.price else "No price is known; give one with --price.")
    doubted = [
        f"{plain(run.run)} is {run.verdict}"
        for run in found.runs
        if not run.verdict.startswith(Answer.VALID.value)
    ]
    if doubted:
        lines.append(f"Not to be used as results: {run_tables.listed(doubted)}.")
    if not found.masters_known:
        lines.append(
            "These journals do not name the master's node: it is taken to be one of those with ranks."
        )
    return lines


TOGETHER: Mapping[str, Callable[[Sequence[float]], Summed]] = {
    "median": median,
    "olympic mean": olympic,
    "variation": variation,
}
"""Rows below those of several runs."""


@frozen
class SpentColumn:
    """A column of what was spent."""

    head: str
    """Name of the column."""
    of: Callable[[Spent], float | None]
    text: Callable[[float], str]
    """How a value is written, with its unit."""

    def cell(self, spent: Spent | None) -> Cell:
        """The amount of one run; a dash if the run did not reach the error."""
        if spent is None:
            return "–", None
        value = self.of(spent)
        return "unknown" if value is None else self.text(value), value

    def together(self, each: Sequence[Spent | None], reading: Callable[[Sequence[float]], Summed]) -> str:
        """The amount of several runs as one; a run that did not reach the error counts as infinity."""
        values = all_known([inf if one is None else self.of(one) for one in each])
        if values is None:
            return "unknown"
        result = reading(values)
        if result.value is None:
            return result.why_not
        return percent(result.value) if reading is variation else self.text(result.value)


def _spent_columns(found: CostStudy) -> list[SpentColumn]:
    """Epochs, time, hours, node-hours, with a price the cost, energy, with an intensity the carbon."""
    level = found.level.value
    cost = [SpentColumn(found.price.unit, lambda spent: spent.money, figure)] if found.price else []
    carbon = [
        SpentColumn(f"CO2e, {level}", lambda spent: found.grams(spent.joules), partial(scaled, unit="g"))
    ]
    return [
        SpentColumn("epochs", lambda spent: spent.epochs, figure),
        SpentColumn("time", lambda spent: spent.seconds, clock),
        SpentColumn("hours", lambda spent: spent.seconds, lambda seconds: figure(seconds / 3600)),
        SpentColumn("node-hours", lambda spent: spent.node_hours, figure),
        *cost,
        SpentColumn(f"energy, {level}", lambda spent: spent.joules, partial(scaled, unit="J")),
        *(carbon if found.carbon is not None else []),
    ]


def cost_table(found: CostStudy) -> Table:
    """A row for each run, up to the error; then, of several runs, what they come to together. The validation
    error is that of the validation that reached the error, otherwise the lowest one."""
    top5, amounts = any(run.top5_error is not None for run in found.runs), _spent_columns(found)
    heads = ["run", "random seed", "reached", "validation error", "best network", "test error"]
    heads += ["top-5 error"] if top5 else []
    rows = [
        [*_reached(run, found, top5), *(each.cell(run.to_error) for each in amounts)] for run in found.runs
    ]
    if len(rows) > 1:
        spent, empty = [run.to_error for run in found.runs], [""] * (len(heads) - 1)
        for name, reading in TOGETHER.items():
            if reading is olympic and len(spent) < LEAST_RUNS:
                continue  # every cell would say so
            rows.append([name, *empty, *(each.together(spent, reading) for each in amounts)])
    columns = [*heads, *(each.head for each in amounts)]
    figures = tuple(name not in ("run", "reached", "best network") for name in columns)
    return Table.of(columns, rows, figures)


def whole_table(found: CostStudy) -> Table:
    """What each run spent from its release to its end."""
    amounts = _spent_columns(found)
    rows = [
        [
            marked(run.run, found.mark),
            (f"{run.nodes:,}", run.nodes),
            (f"{run.devices:,}", run.devices),
            *(each.cell(run.whole) for each in amounts),
        ]
        for run in found.runs
    ]
    columns = ["run", "nodes", "devices", *(each.head for each in amounts)]
    return Table.of(columns, rows, (False, *[True] * (len(columns) - 1)))


def _reached(run: RunCost, found: CostStudy, top5: bool) -> list[Cell]:
    """The first cells of a run: by which trial it reached the error, and what its best network has."""
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
    ]
