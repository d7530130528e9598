"""Runs of one configuration, one after another: how far their figures spread, and by which cause.

A cause is judged by pairs of runs: by those that share the random seed and all choices before the span, by
those that share only one of both, and by those that share neither. Half of the mean squared difference of
such pairs is the variance of a sample of runs that differ so.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import comb, fsum, sqrt

from aiperf.journal.events import Origin
from aiperf.rules.ending import Answer
from aiperf.rules.measurements import mean_ceiling
from aiperf.score.disturbance import disturbances, most_disturbed
from aiperf.score.rungs import at_common_rung, controls_of
from aiperf.wording import clock, counted
from analysis.comparing.comparability import MixedError, refuse_mixed, refuse_sizes
from analysis.comparing.spread import median, variation
from analysis.readings import run_tables
from analysis.readings.hosts import ControlReading, reading_of
from analysis.readings.judgement import Judged
from analysis.readings.score_figures import num_devices, task_of_run
from analysis.readings.steadiness import time_lost
from nas.frozen import frozen

LEAST_RUNS = 2
PROBABILITY = 0.95
"""Least probability that the interval covers the median. It takes six runs; the interval of fewer spans them
all and covers less."""

FIGURES: Mapping[str, str] = {
    "ops_per_second": "sustained OPS",
    "regulated_score": "regulated score",
    "control_per_second": "control",
    "ceiling_ops_per_second": "ceiling",
    "error": "test error",
}

STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Quantiles of Student's t at 97.5 %, of 1 to 10 degrees of freedom."""

CAUSES: Mapping[tuple[bool, bool], tuple[str, str]] = {
    (True, True): (
        "the same seed and choices",
        "needs two runs of one random seed (aiperf-hpc run --repeats 2 --same-seed) with the same choices",
    ),
    (False, True): (
        "other seeds, the same choices",
        "needs two runs of different random seeds (aiperf-hpc run --repeats 2) with the same choices",
    ),
    (True, False): (
        "the same seed, other choices",
        "needs two runs of one random seed with different choices",
    ),
    (False, False): (
        "other seeds and choices",
        "needs two runs of different random seeds with different choices",
    ),
}
"""Name of each cause and the runs that are needed to judge it, by whether two runs have the same random seed
and the same choices."""


@frozen
class Repeat:
    """One run. A figure that is not known is None."""

    run: str
    random_seed: int
    choices: str
    """What was chosen before the span: "bf16, 2 threads, fused steps"."""
    figures: Mapping[str, float | None]
    """Figures, by the keys of `FIGURES`."""
    disturbed: float | None = None
    """Share of the CPU time of the most disturbed host that other programs used, 0 to 1."""
    unsteady: float | None = None
    """Share of the time of steps that would have been saved at the rate of each network's fastest tenth."""


@frozen
class RepeatedRuns:
    """Several runs of one configuration; everything else follows from their figures."""

    preset: str
    """Name of the preset that all runs share."""
    minutes: float
    """Length of the span in minutes; 0 without a limit."""
    machine: str
    """ "8 × NVIDIA A100-SXM4-80GB on 1 host"."""
    devices: int
    """Number of devices of each run."""
    origin: Origin
    control: str
    """What the control is and in what it is stated: "images/s, ResNet-50 v1.5 at 112²"; why it is unknown."""
    runs: tuple[Repeat, ...]
    """The runs, in the order in which they began."""

    def __post_init__(self) -> None:
        if len(self.runs) < LEAST_RUNS:
            raise ValueError(f"it has {counted(len(self.runs), 'run')}; a spread needs {LEAST_RUNS}")

    @property
    def seeds(self) -> int:
        """Number of distinct random seeds."""
        return len({run.random_seed for run in self.runs})

    @property
    def kind(self) -> str:
        """ "digits, 2 minutes, 1 device"."""
        return kind_text(self.preset, self.minutes, self.devices)

    def known(self, key: str) -> list[float]:
        """The figure of all runs that have it."""
        return [value for run in self.runs if (value := run.figures[key]) is not None]


@frozen
class Varied:
    """One figure over the runs that have it. What is not known is None."""

    runs: int
    median: float | None = None
    least: float | None = None
    greatest: float | None = None
    variation: float | None = None
    """The coefficient of variation."""
    low: float | None = None
    """The interval of the median."""
    high: float | None = None
    probability: float | None = None
    """Probability that the interval covers the median of all such runs."""


@frozen
class Cause:
    """What makes runs differ, seen in pairs of runs that differ only so."""

    name: str
    """What the runs of its pairs have in common."""
    runs: int
    """Number of runs that are in at least one of the pairs."""
    pairs: int
    variations: Mapping[str, float | None]
    """The coefficient of variation, by the keys of `FIGURES`."""
    needs: str
    """The runs that are needed to judge this cause; empty if there is a pair."""


def spread(runs: Sequence[Judged]) -> RepeatedRuns:
    """Raises MixedError for runs that are not complete and intact, or not of one configuration and size."""
    if len(runs) < LEAST_RUNS:
        raise MixedError(
            f"{counted(len(runs), 'run')} to compare; a spread needs {LEAST_RUNS}: aiperf-hpc run --repeats 5"
        )
    for run in runs:
        if why := unfit(run):
            raise MixedError(f"{run.files.directory} is {why}; omit it")
    # The number format is chosen by each run, so it is one of the causes and no reason to refuse.
    refuse_mixed(runs, chosen=("training.format",))
    refuse_sizes(runs)
    first, ordered = runs[0].replay, sorted(runs, key=lambda run: run.began)
    controls = _controls(ordered)
    control = "which the runs have at no size in common"
    if controls[0] is not None:
        control = f"{controls[0].amount.name}/s, {controls[0].network}"
    return RepeatedRuns(
        preset=first.opened.config.preset,
        minutes=first.opened.config.limits.minutes,
        machine=run_tables.devices_and_hosts(first),
        devices=num_devices(first),
        origin=first.opened.origin,
        control=control,
        runs=tuple(map(_repeat, ordered, controls)),
    )


def unfit(run: Judged) -> str:
    """Why a run cannot be one of several repeated ones, "INCOMPLETE: …"; empty if it can."""
    ended = run.replay.leg.ended if run.replay.legs else None
    if ended is not None and ended.reason == "interrupted":
        return f"shorter than the others: it was interrupted after {clock(run.score.span_seconds)}"
    fit = (Answer.VALID, Answer.SIMULATED)
    return "" if run.verdict.answer in fit else f"{run.verdict.answer.value}: {run.verdict.cause}"


def varied(found: RepeatedRuns, key: str) -> Varied:
    """One figure over all runs."""
    values = sorted(found.known(key))
    if not values:
        return Varied(0)
    outside, probability = _interval(len(values))
    known = Varied(len(values), median(values).value, values[0], values[-1])
    if len(values) < LEAST_RUNS:
        return known
    low, high = values[outside], values[-1 - outside]
    return replace(known, variation=variation(values).value, low=low, high=high, probability=probability)


def _interval(num: int) -> tuple[int, float]:
    """How many of `num` sorted values lie outside the interval on each side, and its probability: each value
    is below the median with probability one half. The interval is as narrow as `PROBABILITY` allows; with too
    few values it spans all of them."""
    # `tail` is the probability that at most `outside` of the values are below the median.
    outside, tail = 0, 0.5**num
    while 1 - 2 * (tail + comb(num, outside + 1) * 0.5**num) >= PROBABILITY:
        outside += 1
        tail += comb(num, outside) * 0.5**num
    return outside, 1 - 2 * tail


def causes(found: RepeatedRuns) -> list[Cause]:
    """Each cause, in the order of `CAUSES`."""
    means = {key: statistics.fmean(values) for key in FIGURES if (values := found.known(key))}
    return [_cause(found, same, means) for same in CAUSES]


def _cause(found: RepeatedRuns, same: tuple[bool, bool], means: Mapping[str, float]) -> Cause:
    """The variation over all pairs of runs that have the same seed or not, and the same choices or not."""
    pairs = [
        (one, other)
        for one, other in combinations(found.runs, 2)
        if (one.random_seed == other.random_seed, one.choices == other.choices) == same
    ]
    name, needs = CAUSES[same]
    return Cause(
        name=name,
        runs=len({id(run) for pair in pairs for run in pair}),
        pairs=len(pairs),
        variations={key: _of_pairs(pairs, key, means.get(key, 0.0)) for key in FIGURES},
        needs="" if pairs else needs,
    )


def _of_pairs(pairs: Iterable[tuple[Repeat, Repeat]], key: str, mean: float) -> float | None:
    """The coefficient of variation by pairs, from half of their mean squared difference. Over all pairs of a
    sample it equals that of the sample. None if no pair has the figure."""
    values = [(one.figures[key], other.figures[key]) for one, other in pairs]
    squares = [(a - b) ** 2 for a, b in values if a is not None and b is not None]
    return sqrt(fsum(squares) / (2 * len(squares))) / mean if squares and mean > 0 else None


def largest_by_chance(found: RepeatedRuns) -> float | None:
    """The largest difference in sustained OPS between two more such runs in 95 of 100 cases, as a share of
    their mean: the prediction interval of a difference, for a normal distribution."""
    rates = found.known("ops_per_second")
    known = variation(rates).value
    return None if known is None else _student(len(rates) - 1) * sqrt(2) * known


def _student(freedom: int) -> float:
    """The quantile of `STUDENT`; beyond that table by its expansion (Abramowitz and Stegun, 26.7.5), which is
    exact to two thousandths."""
    if freedom <= len(STUDENT):
        return STUDENT[freedom - 1]
    z = statistics.NormalDist().inv_cdf(0.975)
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def kind_text(preset: str, minutes: float, devices: int) -> str:
    """ "digits, 2 minutes, 1 device": what must agree for a spread to say something about a run."""
    length = f"{minutes:g} minute{'s' * (minutes != 1)}" if minutes else "no limit of time"
    return f"{preset}, {length}, {counted(devices, 'device')}"


def kind_of(run: Judged) -> str:
    """The kind of one run, worded as `RepeatedRuns.kind`."""
    config = run.replay.opened.config
    return kind_text(config.preset, config.limits.minutes, num_devices(run.replay))


def refuse_other_spread(found: RepeatedRuns, run: Judged) -> None:
    """Raises MixedError for a run of which this spread says nothing: of another preset, length or size, or
    measured otherwise."""
    own, origin = kind_of(run), run.replay.opened.origin
    if (own, origin) != (found.kind, found.origin):
        raise MixedError(
            f"the spread is that of {found.origin.value} runs of {found.kind}, and "
            f"{run.files.directory} is a {origin.value} run of {own}; give the spread of such runs"
        )


def _repeat(run: Judged, control: ControlReading | None) -> Repeat:
    """What is kept of a run: enough for its spread to be computed again from JSON."""
    replay, score = run.replay, run.score
    disturbed = most_disturbed(disturbances(replay))
    return Repeat(
        run=replay.opened.run_id,
        random_seed=replay.opened.config.random_seed,
        choices=_choices(run),
        figures={
            "ops_per_second": score.ops_per_second,
            "regulated_score": score.regulated_score,
            "control_per_second": control.per_second if control else None,
            "ceiling_ops_per_second": mean_ceiling(replay),
            "error": score.quality.error if score.quality else None,
        },
        disturbed=disturbed.others if disturbed else None,
        unsteady=time_lost(replay),
    )


def _choices(run: Judged) -> str:
    """What the ranks measured and chose: number format, threads (each number once) and engines of the steps;
    and the number of legs if the run was resumed."""
    replay = run.replay
    measured = [ceiling for leg in replay.counted_legs for ceiling in leg.ceilings.values()]
    threads = sorted({ceiling.threads for ceiling in measured} - {0})
    engines = {attempt.engine for attempt in replay.attempts if attempt.began is not None}
    found = [replay.opened.config.training.format]
    if threads:
        found.append(f"{' or '.join(map(str, threads))} thread{'s' * (threads != [1])}")
    if engines:
        found.append(f"{' and '.join(sorted(engines))} steps")
    if replay.num_legs > 1:  # each lost the trials in flight
        found.append(counted(replay.num_legs, "leg"))
    return ", ".join(found)


def _controls(runs: Sequence[Judged]) -> list[ControlReading | None]:
    """The control of each run, at the largest rung that all of them have timed; None for each without one."""
    task = task_of_run(runs[0].replay)
    common = at_common_rung([controls_of(run.replay) for run in runs])
    return [reading_of(task, each) for each in common] if common else [None] * len(runs)
