"""Acceptance: whether the runs of one machine show what a site asks of it, by criterion and by node.

Some criteria compare a run with the earlier ones of its machine: what changed in its figures and environment.
It is one file, because each criterion is a key of one table and each is judged by a few lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from math import fsum
from statistics import median

from aiperf import toml
from aiperf.errors import AiperfError, ConfigError
from aiperf.journal.names import differ
from aiperf.journal.replay import Replay
from aiperf.rules.ending import Answer
from aiperf.rules.rule import Kind
from aiperf.rules.verdict import RunClass
from aiperf.score.disturbance import disturbances
from aiperf.score.fabric import LEAST_PAIRS, fabric_of, is_known, slow_pairs
from aiperf.score.rungs import at_common_rung, comparable, controls_of
from aiperf.wording import counted, figure, percent, rate
from analysis.comparing.comparability import CODE, MixedError, refuse_mixed, refuse_sizes, unlike
from analysis.readings.energy import Level, energy_at, read_energy
from analysis.readings.fabric import bandwidth_text, largest
from analysis.readings.judgement import Judged
from analysis.readings.outliers import outlier_text, outliers
from analysis.readings.robust import LEAST_NUMBER, all_known
from analysis.readings.run_tables import environment
from analysis.readings.score_figures import OF_UNCOUPLED, PER_JOULE, Figure, figures, num_devices
from nas.frozen import frozen
from nas.record import RecordError, decode

LEVELS: Mapping[str, Level] = {
    "ops_per_joule": Level.L0,
    "ops_per_joule_l1": Level.L1,
    "ops_per_joule_l2": Level.L2,
}
"""The figures of energy, each of one level."""
RATES: Mapping[str, Callable[[float], str]] = {
    "ops_per_second": rate,
    "ops_per_second_per_device": rate,
    "mfu": percent,
    "control_examples_per_second": lambda examples: f"{figure(examples)}/s",
    "coupled_share": OF_UNCOUPLED.text,
    "bus_bytes_per_second": bandwidth_text,
    **dict.fromkeys(LEVELS, PER_JOULE.text),
}
"""The figures of which the median of the runs is judged, and how each is written."""
HELD = ("ops_per_second", "control_examples_per_second")
"""The figures that fall when a machine becomes slower, and are compared with those of earlier runs."""
COUNTS = ("runs", "earlier_runs")
"""Keys that are no criterion by themselves."""


class Unacceptable(AiperfError):
    """The runs cannot decide on acceptance: one is not VALID, or they are not of one kind and size."""


@frozen
class Criteria:
    """What a site requires, from a TOML file with these keys; 0 or false: not required."""

    runs: int = 1
    """Fewest runs. Each needs its own random seed, except ranked ones."""
    ranked: bool = False
    """Whether each run must be of the class ranked."""
    min_ops_per_second: float = 0.0
    """Least sustained OPS. This and the other rates are judged by the median of the runs."""
    min_ops_per_second_per_device: float = 0.0
    min_mfu: float = 0.0
    """Least MFU, as a share: 0.35."""
    min_control_examples_per_second: float = 0.0
    """Least rate of the control, all devices together, in examples per second before the span; at the largest
    rung that all of the runs have timed."""
    min_coupled_share: float = 0.0
    """Least rate of the control coupled over all devices, as a share of the uncoupled one: 0.8."""
    min_bus_bytes_per_second: float = 0.0
    """Least bus bandwidth of the largest all-reduce over all ranks, in bytes per second."""
    min_ops_per_joule: float = 0.0
    """Least operations per joule of the devices alone (L0); unknown, which does not pass, if no sensor is
    read."""
    min_ops_per_joule_l1: float = 0.0
    """The same of the nodes; next, of nodes, network and storage (docs/machine.md)."""
    min_ops_per_joule_l2: float = 0.0
    max_error: float = 0.0
    """Largest test error of each run's best network, from 0 to 1."""
    max_spread: float = 0.0
    """Largest (greatest − least) / median of the runs' sustained OPS."""
    min_node_control: float = 0.0
    """Least rate of the slowest control of a node's ranks, as a share of the median of all ranks: 0.95."""
    max_disturbance: float = 0.0
    """Largest share of each host's CPU time that other programs used: 0.05."""
    no_slow_ranks: bool = False
    """Whether it is required that no rank and no group is an outlier (docs/machine.md)."""
    no_slow_pairs: bool = False
    """Whether it is required that no pair of hosts is slow (docs/machine.md)."""
    max_drop: float = 0.0
    """Largest drop of the runs' median sustained OPS and control below the median of the earlier runs, as a
    share: 0.03."""
    earlier_runs: int = 5
    """How many of the earlier runs are compared with: the last ones."""
    same_environment: bool = False
    """Whether versions, threads, governor and variables must be those of the last earlier run, or of the
    first given run if there is no earlier one."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not 0 <= value < float("inf"):
                raise ConfigError(f"{each.name} is {value}; it must be at least 0")
        if self.earlier_runs < 1:
            raise ConfigError("earlier_runs is 0; it must be at least 1")
        if not any(getattr(self, each.name) for each in fields(self) if each.name not in COUNTS):
            raise ConfigError("it has no criterion; add one, such as min_ops_per_second = 1e15")

    @property
    def looks_back(self) -> bool:
        """Whether a criterion compares with earlier runs."""
        return self.max_drop > 0 or self.same_environment


@frozen
class Judgement:
    """One criterion, of all runs, of one run, or of one node of it."""

    criterion: str
    """The key in the file of criteria."""
    run: str
    """Name of the run, or what else was judged, such as "all runs"."""
    measured: str
    """What was found, in words with its unit."""
    required: str
    """The bound, in words; equal to what was measured if that says it all."""
    passed: bool | None
    """None: not known, which does not pass."""
    node: str = ""
    """Name of the node, or several with commas between them; empty for a judgement of the whole run."""

    @property
    def where(self) -> str:
        """The run, and its node if the judgement is about one."""
        return f"{self.run}, node {self.node}" if self.node else self.run

    @property
    def text(self) -> str:
        """What was measured, and what is required where that says more."""
        if self.measured == self.required:
            return self.measured
        return f"{self.measured}, required {self.required}"


@frozen
class Acceptance:
    """The judgements on the runs of one machine."""

    runs: tuple[str, ...]
    """Names of the runs, in the order in which they were given."""
    judgements: tuple[Judgement, ...]

    @property
    def passed(self) -> bool:
        """Whether everything passed; what is unknown did not."""
        return all(each.passed for each in self.judgements)


def read_criteria(text: str, where: str) -> Criteria:
    """Raises ConfigError, which names `where` and the key."""
    try:
        return decode(Criteria, toml.parsed(text))
    except (ValueError, RecursionError, RecordError, ConfigError) as error:
        raise ConfigError(f"{where}: {error}") from None


def accept(criteria: Criteria, runs: Sequence[Judged], history: Sequence[Judged] = ()) -> Acceptance:
    """`history` holds the runs among which the earlier ones are found.

    Raises Unacceptable for a run that is not VALID, and for runs that are not of one kind and size.
    """
    for run in runs:
        if run.verdict.answer is not Answer.VALID:
            failed = [finding.text for finding in run.verdict.failed(Kind.INTEGRITY)]
            why = failed[0] if failed else run.verdict.cause
            raise Unacceptable(f"{run.files.directory} is {run.verdict.answer.value}: {why}; omit it")
    try:
        refuse_mixed(runs)
        refuse_sizes(runs)
    except MixedError as error:
        raise Unacceptable(str(error)) from None
    return Acceptance(
        tuple(run.replay.opened.run_id for run in runs),
        (
            *_together(criteria, runs),
            *_medians(criteria, runs),
            # Run by run, so that what a run failed stands together.
            *(each for run in runs for each in (*_alone(criteria, run), *_nodes(criteria, run))),
            *_since(criteria, runs, history),
        ),
    )


def _together(criteria: Criteria, runs: Sequence[Judged]) -> Iterator[Judgement]:
    """Judgements of the runs as a set: how many there are, and how far their rates lie apart. A ranked run
    has the seed of its ranking, so only other runs need seeds of their own."""
    seeds = {run.replay.opened.config.random_seed for run in runs}
    text = f"{counted(len(runs), 'run')}, {counted(len(seeds), 'random seed')}"
    needs_seeds = not runs[0].replay.opened.config.ranked
    enough = len(runs) >= criteria.runs and (len(seeds) == len(runs) or not needs_seeds)
    required = f"at least {criteria.runs}" + ", each with its own seed" * needs_seeds
    yield Judgement("runs", "all runs", text, required, enough)
    if criteria.max_spread:
        rates = [run.score.ops_per_second for run in runs]
        spread = (max(rates) - min(rates)) / median(rates) if len(rates) > 1 else None
        alone = "unknown: one run has no other to compare it with"
        found = _bounded("max_spread", "all runs", spread, criteria.max_spread, percent)
        yield replace(found, measured=alone) if spread is None else found


def _medians(criteria: Criteria, runs: Sequence[Judged]) -> Iterator[Judgement]:
    """Judgements of the rates, by their median, because the rate of one run is partly chance."""
    for key, text in RATES.items():
        if bound := getattr(criteria, f"min_{key}"):
            found = _bounded(f"min_{key}", _median_of(runs), _median(_rates(runs, key)), bound, text)
            of_level = f" ({LEVELS[key].text})" if key in LEVELS else ""
            why = _why_unknown(runs, key) if found.passed is None else ""
            yield replace(found, measured=f"{found.measured}{f': {why}' * bool(why)}{of_level}")


def _rates(runs: Sequence[Judged], key: str) -> list[float | None]:
    """The figure `key` of each run. Energy, control and fabric are not among the figures of a score as they
    are judged here: energy has levels, and controls compare only at a rung that all of the runs have."""
    if key in LEVELS:
        found = [energy_at(LEVELS[key], read_energy(run.files, run.replay)) for run in runs]
        return [each.ops_per_joule(run.score.goodput.operations) for each, run in zip(found, runs)]
    if key == "control_examples_per_second":
        common = at_common_rung([controls_of(run.replay) for run in runs])
        return [fsum(one.examples_per_second for one in each.values()) for each in common or ()]
    if key == "bus_bytes_per_second":
        sums = [largest(fabric) if (fabric := fabric_of(run.replay)) else None for run in runs]
        return [found.bytes_per_second if found else None for found in sums]
    return [figures(run.replay, run.score)[key].value for run in runs]


def _why_unknown(runs: Sequence[Judged], key: str) -> str:
    """Why the figure of the first run that lacks it is unknown; empty if nothing is known of that."""
    if key in LEVELS:
        missing = (energy_at(LEVELS[key], read_energy(run.files, run.replay)).missing for run in runs)
        return next(filter(None, missing), "")
    known = (figures(run.replay, run.score)[key] for run in runs if key == "mfu")
    return next((one.aside for one in known if one.value is None), "")


def _median(values: Sequence[float | None]) -> float | None:
    """The median; None if a value is unknown, or if there are none."""
    known = all_known(values)
    return None if known is None else median(known)


def _median_of(runs: Sequence[Judged]) -> str:
    """What a median is of: "median of 3 runs", or the name of the only run."""
    return f"median of {len(runs)} runs" if len(runs) > 1 else runs[0].replay.opened.run_id


def _alone(criteria: Criteria, run: Judged) -> Iterator[Judgement]:
    """Judgements of one run as a whole."""
    name = run.replay.opened.run_id
    if criteria.ranked:
        is_ranked = run.verdict.run_class is RunClass.RANKED
        yield Judgement("ranked", name, "ranked" if is_ranked else "smoke", "ranked", is_ranked)
    if criteria.max_error:
        measured = run.score.quality.error if run.score.quality else None
        yield _bounded("max_error", name, measured, criteria.max_error, percent)


def _nodes(criteria: Criteria, run: Judged) -> Iterator[Judgement]:
    """Judgements of the nodes of a run, each of which names its node: a site replaces nodes, not runs."""
    name = run.replay.opened.run_id
    if criteria.min_node_control:
        for host, share in sorted(node_controls(run.replay).items()):
            found = _bounded("min_node_control", name, share, criteria.min_node_control, percent)
            if num_devices(run.replay) == 1:
                found = replace(found, measured="unknown: one rank has no other to compare it with")
            yield replace(found, node=host)
    if criteria.max_disturbance:
        for each in disturbances(run.replay):
            share = each.others if each.known else None
            found = _bounded("max_disturbance", name, share, criteria.max_disturbance, percent)
            yield replace(found, node=each.host)
    if criteria.no_slow_ranks:
        slow = outliers(run.replay)
        for one in slow:
            yield Judgement("no_slow_ranks", name, outlier_text(one), "none", False, ", ".join(one.hosts))
        if not slow:
            known = num_devices(run.replay) >= LEAST_NUMBER
            few = "unknown: fewer than four ranks cannot be compared"
            yield Judgement("no_slow_ranks", name, "none" if known else few, "none", True if known else None)
    if criteria.no_slow_pairs:
        yield from _pairs(run)


def _pairs(run: Judged) -> Iterator[Judgement]:
    """Judgements of the slow pairs of hosts, each of which names both."""
    name, fabric = run.replay.opened.run_id, fabric_of(run.replay)
    slow = slow_pairs(fabric) if fabric is not None else []
    for each in slow:
        text = f"{bandwidth_text(each.bytes_per_second)}, where the median was {bandwidth_text(each.median)}"
        yield Judgement("no_slow_pairs", name, text, "none", False, ", ".join(each.hosts))
    if not slow:
        known = fabric is not None and is_known(fabric)
        enough = fabric is not None and len(fabric.nodes) >= 2 * LEAST_PAIRS
        why = f"fewer than {2 * LEAST_PAIRS} hosts cannot be compared" if known else "the fabric is not known"
        passed = known and enough
        text = "none" if passed else f"unknown: {why}"
        yield Judgement("no_slow_pairs", name, text, "none", True if passed else None)


def node_controls(replay: Replay) -> dict[str, float | None]:
    """The slowest control of each host as a share of the median of all ranks, in the counted leg in which it
    was slowest.

    None if a leg did not measure it, because a slow host must not hide in a further leg, or if a single rank
    did: it is its own median.
    """
    shares: dict[str, list[float | None]] = {}
    for leg in replay.counted_legs:
        controls = comparable(leg.controls).values()
        middle = median([control.examples_per_second for control in controls] or [0.0])
        for host in {event.ready.host for event in leg.ranks}:
            own = [each.examples_per_second for each in controls if each.host == host]
            known = own and middle > 0 and len(controls) > 1
            shares.setdefault(host, []).append(min(own) / middle if known else None)
    return {host: least(found) for host, found in shares.items()}


def least(values: Sequence[float | None]) -> float | None:
    """The least value; None if a value is unknown, because it may be the least."""
    known = all_known(values)
    return None if known is None else min(known)


def _since(criteria: Criteria, runs: Sequence[Judged], history: Sequence[Judged]) -> Iterator[Judgement]:
    """Judgements of the runs relative to earlier ones of the same machine."""
    if criteria.max_drop:
        first = min(runs, key=lambda run: run.began)
        for drop in drops(runs, earlier(first, history, criteria.earlier_runs)):
            passed = None if drop.share is None else drop.share <= criteria.max_drop
            required = f"at most {percent(criteria.max_drop)} below"
            yield Judgement("max_drop", _median_of(runs), drop.text, required, passed)
    for run in runs if criteria.same_environment else ():
        before = earlier(run, history, criteria.earlier_runs)
        last = before[-1] if before else runs[0]
        name = run.replay.opened.run_id
        if last is not run:
            found = changes(last, run)
            measured = f"{counted(len(found), 'change')}: {'; '.join(found)}" if found else "no change"
            required = f"that of {last.replay.opened.run_id}"
            yield Judgement("same_environment", name, measured, required, not found)
        elif len(runs) == 1:  # of several, the others are compared with this one
            nothing = "unknown: there is no earlier run and no other to compare it with"
            yield Judgement("same_environment", name, nothing, "that of an earlier run", None)


def _bounded(
    criterion: str, run: str, value: float | None, bound: float, text: Callable[[float], str]
) -> Judgement:
    """The judgement of a value that may not be above (`max_…`) or below (`min_…`) its bound. A value that is
    not known does not pass."""
    at_most = criterion.startswith("max_")
    required = f"at {'most' if at_most else 'least'} {text(bound)}"
    if value is None:
        return Judgement(criterion, run, "unknown", required, None)
    return Judgement(criterion, run, text(value), required, value <= bound if at_most else value >= bound)


@frozen
class Drop:
    """How far one figure of some runs lies below the median of earlier runs."""

    figure: Figure
    share: float | None
    """The difference as a share of that median; below 0 if the runs have more. None if the figure is unknown
    for one of the runs or for all earlier ones."""
    earlier: int
    """Earlier runs that have the figure."""

    @property
    def text(self) -> str:
        """A sentence: "sustained OPS 3.10 % below the median of 5 earlier runs"."""
        if self.share is None:
            return f"{self.figure.name}: not known for both these runs and an earlier one"
        side = "below" if self.share >= 0 else "above"
        of = "the earlier run" if self.earlier == 1 else f"the median of {self.earlier} earlier runs"
        return f"{self.figure.name} {percent(abs(self.share))} {side} {of}"


def earlier(run: Judged, others: Sequence[Judged], most: int) -> list[Judged]:
    """The last `most` VALID runs that began before `run`, with its configuration, data, devices and size,
    oldest first.

    Their code may differ: a new version of the program is one of the changes that a site looks for, and
    `environment` names it.
    """
    same = [
        other
        for other in others
        if other.valid
        and other.replay.begin_chain != run.replay.begin_chain
        and other.began < run.began
        and num_devices(other.replay) == num_devices(run.replay)
        and set(unlike(run, other)) <= {CODE}
    ]
    return sorted(same, key=lambda other: other.began)[-most:]


def drops(runs: Sequence[Judged], before: Sequence[Judged]) -> list[Drop]:
    """The medians of sustained OPS and the control, compared with those of the earlier runs."""
    own = [figures(run.replay, run.score) for run in runs]
    ops, control = (replace(own[0][key], value=_median([each[key].value for each in own])) for key in HELD)
    return [
        _drop(ops, [each.score.ops_per_second for each in before]),
        _drop(control, [_control(runs, each, control.value) for each in before]),
    ]


def _control(runs: Sequence[Judged], other: Judged, own: float | None) -> float | None:
    """The other run's control, scaled so that it compares with `own`, the median control of the runs.

    Both are taken at a rung that all have, because rates of two rungs do not compare. None if there is none.
    """
    common = at_common_rung([controls_of(each.replay) for each in (*runs, other)])
    if own is None or common is None:
        return None
    *mine, its = (fsum(each.examples_per_second for each in controls.values()) for controls in common)
    return own * its / median(mine) if median(mine) > 0 else None


def _drop(own: Figure, theirs: Sequence[float | None]) -> Drop:
    """The figure relative to the median of those earlier values that are known."""
    known = [value for value in theirs if value]
    if own.value is None or not known:
        return Drop(own, None, len(known))
    return Drop(own, 1 - own.value / median(known), len(known))


def changes(before: Judged, after: Judged) -> list[str]:
    """The differences of the environment, one text per name: "governor: performance, was powersave"."""
    old, new = environment(before.replay), environment(after.replay)
    return [
        f"{name}: {new.get(name, 'absent')}, was {old.get(name, 'absent')}"
        for name in dict.fromkeys((*old, *new))
        if differ(old.get(name), new.get(name))
    ]
