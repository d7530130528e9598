"""Two runs side by side: what differs between them, in their scores and in what they were."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from statistics import fmean

from aiperf.journal.mark import Mark, marked
from aiperf.journal.names import differ, is_hidden
from aiperf.rules.ending import Answer
from aiperf.score.disturbance import disturbances, most_disturbed
from aiperf.score.fabric import fabric_of
from aiperf.score.rungs import at_common_rung, comparable, controls_of
from aiperf.score.score import Score
from aiperf.wording import counted, percent, plain, rates
from analysis.comparing.repeatability import RepeatedRuns, kind_of, largest_by_chance, refuse_other_spread
from analysis.readings import run_tables
from analysis.readings.devices import MIXED, most_threads, product_ceilings, products_text
from analysis.readings.energy import Level, energy_at, read_energy
from analysis.readings.fabric import coupled_reading, largest, transports_text
from analysis.readings.hosts import reading_of
from analysis.readings.judgement import Judged, refuse_two_tasks
from analysis.readings.occupancy import PART_TEXTS, PARTS, occupancy
from analysis.readings.score_figures import ERROR, PER_JOULE, RATE, Figure, figures, task_of_run
from analysis.readings.steadiness import time_lost
from analysis.table import Table, aligned
from nas.frozen import frozen

HOSTS_SHOWN = 8
NOTED_DISTURBANCE = 0.05
"""Least difference between the shares of CPU time that others used for it to be named."""
LARGEST_SPREAD = 0.33
"""The most by which two runs of one configuration differ in 95 of 100 cases, as a share of their mean, of all
repeated runs in docs/search.md that the present presets made, on quiet machines: five runs with a coefficient
of variation of 8.3 %, which is the largest, times √2 and Student's t."""
SHORTEST_SECONDS = 60.0
"""The shortest of those runs; how far shorter ones differ was not measured."""
MEASURE = "aiperf-hpc run --like RUN --repeats 5"
"""The command that measures the spread."""


@frozen
class Comparison:
    """Tables of name, first, second and difference; a table has no rows if nothing differs."""

    names: tuple[str, str]
    """Names of the two runs, each with its mark if it was not measured."""
    mark: Mark | None
    """The mark of both runs, or one whose text says which run it is about; None if both were measured."""
    says: str
    """What differs in a few sentences: warnings first, then the ratio of the rates, then what else
    differs."""
    score: Table
    """Figures of the score, whether they differ or not; so is `time`."""
    time: Table
    configuration: Table
    machine: Table
    software: Table
    surroundings: Table


def compare(first: Judged, second: Judged, spread: RepeatedRuns | None = None) -> Comparison:
    """`spread` is that of runs with the same preset, length and size, if it was measured.

    Raises AiperfError for runs of two tasks, and for the spread of other runs.
    """
    refuse_two_tasks(first, second)
    if spread is not None:
        for run in (first, second):
            refuse_other_spread(spread, run)
    ids = (first.replay.opened.run_id, second.replay.opened.run_id)
    if ids[0] == ids[1]:
        ids = (f"{ids[0]} (first)", f"{ids[1]} (second)")
    names = marked(ids[0], first.verdict.mark), marked(ids[1], second.verdict.mark)
    others = {
        "configuration": _differences(names, _configuration(first), _configuration(second)),
        "machine": _differences(names, _machine(first, second), _machine(second, first)),
        "software": _differences(names, *(run_tables.versions(one.replay) for one in (first, second))),
        "surroundings": _differences(
            names, *(run_tables.surroundings(one.replay) for one in (first, second))
        ),
    }
    return Comparison(
        names=names,
        mark=_mark(first.verdict.mark, second.verdict.mark),
        says=f"{_warning(first, second)}{_says(first, second, spread)} {_beside(others)}",
        score=_table(names, _score(first, second)),
        time=_table(names, _time(first, second)),
        **others,
    )


def comparison_text(found: Comparison) -> str:
    """The comparison as text for a terminal."""
    parts = [found.says]
    for title in ("score", "time", "configuration", "machine", "software", "surroundings"):
        table = getattr(found, title)
        parts.append(table_text(table) if table.rows else f"{title}: no difference")
    return "\n\n".join(parts) + "\n"


def table_text(table: Table) -> str:
    """The table as text for a terminal, with columns aligned."""
    return aligned([[plain(cell) for cell in row] for row in (table.columns, *table.rows)], table.figures)


def _mark(first: Mark | None, second: Mark | None) -> Mark | None:
    """The mark of either run; if only one has it, or each has another, its text says of which it is."""
    either = first or second
    if either is None or first == second:
        return either
    told = [mark.sentence(f"the {name} run") for name, mark in (("first", first), ("second", second)) if mark]
    return replace(either, text="; ".join(told))


def _warning(first: Judged, second: Judged) -> str:
    """Warnings that come before the figures."""
    return "".join(
        f"Warning: the {name} run is {one.verdict.answer.value}, its figures must not be used "
        f"{'as results ' if one.verdict.answer is Answer.SIMULATED else ''}({one.verdict.cause}). "
        for name, one in (("first", first), ("second", second))
        if not one.verdict.valid
    ) + "".join(of(first, second) for of in (_laid_out, _disturbed, _unsteady))


def _laid_out(first: Judged, second: Judged) -> str:
    """Whether the groups of only one run span hosts: its gradients crossed what lies between them."""
    hosts = [run_tables.hosts_of_groups(one.replay)[1] for one in (first, second)]
    if (hosts[0] > 1) is (hosts[1] > 1):
        return ""
    name = "first" if hosts[0] > 1 else "second"
    return (
        f"Warning: only in the {name} run do groups span hosts ({max(hosts):,} each), so that every gradient "
        "crossed the network between them: the two did not run the same way. "
    )


def _unsteady(first: Judged, second: Judged) -> str:
    """How equally long steps of one network took, if that differs."""
    lost = [time_lost(one.replay) for one in (first, second)]
    if lost[0] is None or lost[1] is None or abs(lost[0] - lost[1]) < NOTED_DISTURBANCE:
        return ""
    return (
        "The two were not equally steady: at the rate of each network's fastest tenth of the steps "
        f"{percent(lost[0], 1)} of their time would have been saved in the first, {percent(lost[1], 1)} in "
        "the second. "
    )


def _disturbed(first: Judged, second: Judged) -> str:
    """The first difference that is named: how much other programs used, if that differs."""
    worst = [most_disturbed(disturbances(one.replay)) for one in (first, second)]
    if worst[0] is None or worst[1] is None or abs(worst[0].others - worst[1].others) < NOTED_DISTURBANCE:
        return ""
    shares = [percent(each.others, 1) for each in worst if each]
    return (
        f"The two were not equally disturbed: other programs used {shares[0]} of a host's CPU time in the "
        f"first, {shares[1]} in the second. "
    )


def _says(first: Judged, second: Judged, spread: RepeatedRuns | None) -> str:
    """The ratio of the rates in a sentence, and whether it may be chance. A ratio that would be shown as 0.00
    % is said to be none."""
    rates = [run.score.ops_per_second for run in (first, second)]
    for name, rate in zip(("first", "second"), rates):
        if not rate:
            return f"The {name} run has no credited operations; there is nothing to compare."
    ratio = rates[1] / rates[0] - 1
    # Shown as a per cent with two decimals, it would be 0.00 %.
    if abs(ratio) < 5e-5:
        return "The second run is as fast as the first."
    seeds = {run.replay.opened.config.random_seed for run in (first, second)}
    change = f"{percent(abs(ratio))} {'higher' if ratio > 0 else 'lower'}"
    kinds = [kind_of(run) for run in (first, second)]
    if kinds[0] != kinds[1]:
        why = f"The first is of {kinds[0]}, the second of {kinds[1]}, so they need not be equally fast."
    else:
        why = chance_text(rates, seeds, min(run.score.span_seconds for run in (first, second)), spread)
    return f"The second run has {change} OPS than the first. {why}"


def chance_text(
    rates: Sequence[float], seeds: Collection[int], seconds: float, spread: RepeatedRuns | None
) -> str:
    """Whether two runs of one configuration differ as much as these two, of these random seeds and of spans
    of at least `seconds`. The interval of the stable window does not say so: it is of one run, and the next
    one grows other networks."""
    doubt = _doubt(rates, seconds)
    if spread is None:
        return (
            f"How far runs of one configuration differ is not known here, {doubt}: `{MEASURE}` measures it, "
            "and --spread takes what `aiperf-hpc spread --json` prints of those runs."
        )
    told = f"{len(spread.runs)} runs with {counted(spread.seeds, 'random seed')}, {plain(spread.machine)}"
    most = largest_by_chance(spread)
    if most is None:
        return f"One run has no spread ({told}), {doubt}: `{MEASURE}` measures that of several."
    # Two seeds grow two networks, which a spread of one seed says nothing about.
    if spread.seeds == 1 < len(seeds):
        return (
            f"Their random seeds differ, and the spread is that of one seed ({told}), {doubt}: "
            f"`{MEASURE}` measures that of several."
        )
    # Relative to the mean of the two, because the spread is relative to a mean, too.
    is_larger = abs(rates[1] - rates[0]) > most * fmean(rates)
    return (
        f"The difference is {'larger than' if is_larger else 'within'} the spread: two runs of {spread.kind} "
        f"differ by up to {percent(most)} of their mean in 95 of 100 cases ({told})."
    )


def _doubt(rates: Sequence[float], seconds: float) -> str:
    """What is known without a spread of such runs."""
    if seconds < SHORTEST_SECONDS or abs(rates[1] - rates[0]) <= LARGEST_SPREAD * fmean(rates):
        return "so this may be chance"
    return (
        "but this is hardly chance (two runs of our presets on quiet machines differ by up to "
        f"{percent(LARGEST_SPREAD, 0)} of their mean in 95 of 100 cases)"
    )


def _beside(tables: Mapping[str, Table]) -> str:
    """A sentence on what else may have made the difference."""
    numbers = {name: sum(row[0] != run_tables.JOB for row in table.rows) for name, table in tables.items()}
    other = [f"{name} ({counted(number, 'difference')})" for name, number in numbers.items() if number]
    if not other:
        return "Their configuration, machine, software and surroundings are the same."
    return (
        f"They also differ in {run_tables.listed(other)}, listed below the figures, "
        "which cannot show what made them differ."
    )


def _score(first: Judged, second: Judged) -> list[list[str]]:
    """The rows of the table of scores, in the order of a summary."""
    a, b = (figures(one.replay, one.score) for one in (first, second))
    rows = {key: _row(one, b[key]) for key, one in a.items()}
    return [
        rows["ops_per_second"],
        ["stable window, 95 % interval", _interval(first.score), _interval(second.score), ""],
        *(rows[key] for key in ("tensor_ops_per_second", "ops_per_second_per_device", "mfu")),
        rows["regulated_score"],
        *_energy(first, second),
        rows["error"],
        _control(first, second),
        *([rows["coupled_share"]] if any(map(coupled_reading, (first.replay, second.replay))) else []),
        _ceiling(first, second),
        *_fabric(first, second),
        rows["span_seconds"],
        ["trials dispatched", *(f"{sum(one.score.trials.values()):,}" for one in (first, second)), ""],
        [
            "verdict",
            *(run_tables.verdict_and_class(one.verdict, one.validated) for one in (first, second)),
            "",
        ],
    ]


def _row(first: Figure, second: Figure) -> list[str]:
    """Both values of a figure, and how far the second is from the first, in the figure's unit."""
    return [first.name, first.text, second.text, first.unit.change(first.value, second.value)]


def _control(first: Judged, second: Judged) -> list[str]:
    """The row of the control, at the largest rung that both runs have; if there is none, each at its own rung
    and without a difference."""
    both = [controls_of(one.replay) for one in (first, second)]
    common = at_common_rung(both)
    shown = common or [comparable(controls) for controls in both]
    readings = [reading_of(task_of_run(first.replay), controls) for controls in shown]
    told = [f"{reading.text} at {reading.sizes}" if reading else "not measured" for reading in readings]
    if common is None and all(both) and len({reading and reading.sizes for reading in readings}) == 1:
        batches = [sorted({one.batch_size for one in controls.values()}) for controls in shown]
        words = [run_tables.listed([*map(str, sizes)]) for sizes in batches]
        told = [f"{text} in batches of {sizes}" for text, sizes in zip(told, words)]
    values = [reading.per_second if reading else None for reading in readings]
    return ["control", *told, RATE.change(*values) if common else ""]


def _ceiling(first: Judged, second: Judged) -> list[str]:
    """The row of the ceiling of matrix products, with the most threads that all ranks of both runs were
    measured with; if there is no such number, each with its own and without a difference."""
    both = [product_ceilings(one.replay) for one in (first, second)]
    common = both[0].keys() & both[1].keys() - {MIXED}
    counts = [most_threads(common)] * 2 if common else [most_threads(each) for each in both]
    told = [products_text(each, count) if each else "unknown" for each, count in zip(both, counts)]
    change = RATE.change(*(each[count] for each, count in zip(both, counts))) if common else ""
    return ["ceiling of products", *told, change]


def _fabric(first: Judged, second: Judged) -> Iterator[list[str]]:
    """The row of the largest all-reduce, if one of them measured any; a difference only of one size over as
    many ranks."""
    both = [largest(fabric) if (fabric := fabric_of(one.replay)) else None for one in (first, second)]
    if any(both):
        told = [found.text if found else "unknown" for found in both]
        alike = len({found and (found.bytes, found.ranks) for found in both}) == 1
        values = [found.bytes_per_second if found else None for found in both]
        yield ["all-reduce, bus bandwidth", *told, RATE.change(*values) if alike else ""]


def _energy(first: Judged, second: Judged) -> Iterator[list[str]]:
    """A row for each level that was measured in one of them; that of the devices always."""
    both = [read_energy(one.files, one.replay) for one in (first, second)]
    for level in Level:
        if level is Level.L0 or any(each.level is level for found in both for each in found):
            ops = [one.score.goodput.operations for one in (first, second)]
            values = [energy_at(level, found).ops_per_joule(done) for found, done in zip(both, ops)]
            yield _row(*(Figure(f"OPS/W ({level.text})", value, PER_JOULE) for value in values))


def _time(first: Judged, second: Judged) -> list[list[str]]:
    """How the groups spent their time; the parts add up to 100 %."""
    a, b = (occupancy(one.replay, one.credit).shares for one in (first, second))
    return [_row(*(Figure(PART_TEXTS[part], one[part], ERROR) for one in (a, b))) for part in PARTS]


def _configuration(judged: Judged) -> dict[str, object]:
    """The keys of the configuration, and which data they led to: the same path may hold other files."""
    configured = run_tables.flat(asdict(judged.replay.opened.config))
    return {**configured, "data.sha256": str(judged.replay.manifest.get("sha256", "none"))}


def _machine(judged: Judged, other: Judged) -> dict[str, str]:
    """What the machine was. Hosts are named only if none is hidden: two runs may hide the same host under two
    names."""
    replay = judged.replay
    hosts, others = (
        {event.ready.host for leg in one.replay.counted_legs for event in leg.ranks}
        for one in (judged, other)
    )
    own = [] if any(map(is_hidden, hosts | others)) else sorted(hosts - others)
    more = f" and {len(own) - HOSTS_SHOWN:,} more" if len(own) > HOSTS_SHOWN else ""
    return {
        "devices": run_tables.devices_and_hosts(replay),
        "hosts not in the other run": ", ".join(own[:HOSTS_SHOWN]) + more,
        "groups": str(run_tables.num_groups(replay)),
        "backend": ", ".join(sorted({leg.began.backend for leg in replay.counted_legs})),
        **({"transports": transports_text(fabric)} if (fabric := fabric_of(replay)) else {}),
    }


def _differences(names: tuple[str, str], first: Mapping[str, object], second: Mapping[str, object]) -> Table:
    """A row for each name whose values are known to differ: what one run hides may be what the other
    shows."""
    rows = []
    for name in dict.fromkeys([*first, *second]):
        if differ(first.get(name), second.get(name)):
            both = (run_tables.setting_text(one.get(name, "absent")) for one in (first, second))
            rows.append([name, *both])
    return Table(("", *names), rows, (False, True, True))


def _table(names: tuple[str, str], rows: Sequence[Sequence[str]]) -> Table:
    """A table with one column for each run."""
    return Table(("", *names, "difference"), rows, (False, True, True, True))


def _interval(score: Score) -> str:
    """The 95 % interval of the OPS in the stable window."""
    interval = score.timeline.stable_interval
    return "none" if interval is None else rates(*interval)
