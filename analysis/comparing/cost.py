"""What it took to reach an error: time, node-hours, money and energy, of one run or of several.

The time to an error is DAWNBench's (Coleman et al., "DAWNBench", NIPS ML Systems Workshop, 2017): up to the
first moment at which it is reached. How several runs become one figure is the rule of MLPerf Training and the
measure of AIBench: docs/beyond.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aiperf.journal.mark import Mark, mark_of
from aiperf.rules.ending import Answer
from aiperf.wording import plain
from analysis.comparing.comparability import MixedError, refuse_twice, refuse_unlike
from analysis.readings import run_tables
from analysis.readings.energy import Level, energy_at, read_energy
from analysis.readings.judgement import Judged
from analysis.readings.progress import Fall, epochs_until, falls, node_hours, num_nodes
from analysis.readings.score_figures import num_devices, task_of_run
from launch.price import Price

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


@dataclass(frozen=True)
class Spent:
    """What all nodes of a run spent from its release up to a moment, whether they worked or waited."""

    seconds: float
    node_hours: float
    money: float | None
    """Cost in the currency of the price; None if no price was given."""
    joules: float | None
    """Energy of the level of the study; None if it is not known."""
    epochs: float | None
    """Passes over the training examples by all networks of the search; None where it is not known."""


@dataclass(frozen=True)
class RunCost:
    """What one run spent to reach an error. None: not known, or not reached."""

    run: str
    random_seed: int
    nodes: int
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

    @property
    def is_reached(self) -> bool:
        return not self.why_not

    @property
    def to_error(self) -> Spent | None:
        """What was spent to reach the error; None if it was not reached."""
        return self.spent if self.is_reached else None


@dataclass(frozen=True)
class CostStudy:
    runs: Sequence[RunCost]
    error: float
    error_text: str
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
        sizes = [(first.nodes, first.devices) for first in (found[0], one)]
        if sizes[0] != sizes[1]:
            raise MixedError(
                f"{run.files.directory} has {_size(*sizes[1])} and {runs[0].files.directory} has "
                f"{_size(*sizes[0])}; their times make no mean, look at each alone"
            )
    text = task_of_run(runs[0].replay).error_text(error)
    known = all(leg.began.host for run in runs for leg in run.replay.timed_legs)
    mark = mark_of(runs[0].replay.opened.origin)
    return CostStudy(found, error, text, price, mark, known, level, carbon)


def _size(nodes: int, devices: int) -> str:
    return f"{nodes:,} node{'' if nodes == 1 else 's'} and {devices:,} device{'' if devices == 1 else 's'}"


def _of_run(run: Judged, error: float, price: Price | None, level: Level) -> RunCost:
    replay = run.replay
    found = falls(replay)
    first = next((fall for fall in found if fall.error <= error), None)
    tested = replay.tested
    test_error = None if tested is None else tested.tally.error
    return RunCost(
        run=replay.opened.run_id,
        random_seed=replay.opened.config.random_seed,
        nodes=max(map(num_nodes, replay.timed_legs), default=0),
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
    if first is None:
        return NOT_REACHED
    if test_error is None:
        return NOT_TESTED
    return "" if test_error <= error else NOT_IN_THE_TEST


def _spent(run: Judged, seconds: float, price: Price | None, level: Level) -> Spent:
    hours = node_hours(run.replay, seconds)
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
