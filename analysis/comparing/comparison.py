"""Two runs side by side: what differs between them, in their scores and in what they were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from aiperf.score.score import Score
from aiperf.wording import clock, figure, percent, plain, rate, rates, scaled
from analysis.readings import facts
from analysis.readings.hosts import control_sizes
from analysis.readings.judged import Judged
from analysis.readings.key import num_devices
from analysis.readings.occupancy import PARTS, occupancy
from analysis.readings.usage import read_usage
from analysis.table import Table

HOSTS_SHOWN = 8


@dataclass(frozen=True)
class Comparison:
    """Rows of name, first, second, difference; where nothing differs there are none."""

    names: tuple[str, str]
    says: str
    score: Table
    time: Table
    configuration: Table
    machine: Table
    software: Table
    surroundings: Table


def compare(first: Judged, second: Judged) -> Comparison:
    names = (first.replay.opened.run_id, second.replay.opened.run_id)
    if names[0] == names[1]:
        names = (f"{names[0]} (first)", f"{names[1]} (second)")
    configs = (asdict(one.replay.opened.config) for one in (first, second))
    configuration = _differences(names, *map(facts.flat, configs))
    machine = _differences(names, _machine(first, second), _machine(second, first))
    software = _differences(names, _software(first), _software(second))
    around = _differences(names, *(facts.surroundings(one.replay) for one in (first, second)))
    others = {"configuration": configuration, "machine": machine, "software": software}
    others["surroundings"] = replace(around, rows=[row for row in around.rows if row[0] != "job"])
    return Comparison(
        names=names,
        says=f"{_says(first.score, second.score)} {_beside(others)}",
        score=_table(names, _score(first, second)),
        time=_table(names, _time(first, second)),
        configuration=configuration,
        machine=machine,
        software=software,
        surroundings=around,
    )


def comparison_text(found: Comparison) -> str:
    """For a terminal."""
    parts = [found.says]
    for title in ("score", "time", "configuration", "machine", "software", "surroundings"):
        table: Table = getattr(found, title)
        parts.append(_plain(table) if table.rows else f"{title}: no difference")
    return "\n\n".join(parts) + "\n"


def _says(first: Score, second: Score) -> str:
    for name, score in (("first", first), ("second", second)):
        if not score.ops_per_second:
            return f"The {name} run has no credited operation; there is nothing to compare with."
    ratio = second.ops_per_second / first.ops_per_second - 1
    change = (
        "is as fast as"
        if abs(ratio) < 5e-5
        else f"has {percent(abs(ratio))} {'more' if ratio > 0 else 'less'} OPS than"
    )
    text = f"The second run {change} the first."
    a, b = first.timeline.stable_interval, second.timeline.stable_interval
    if a is None or b is None:
        return f"{text} One has no stable window, so it is not known whether that is more than chance."
    if a[0] <= b[1] and b[0] <= a[1]:
        return f"{text} Their 95 % intervals overlap: the difference may be chance."
    return f"{text} Their 95 % intervals do not overlap."


def _beside(tables: Mapping[str, Table]) -> str:
    """Whether something else than what is looked for may have made the difference; a job's number has not."""
    other = [f"{name} ({len(table.rows)})" for name, table in tables.items() if table.rows]
    if not other:
        return "Their configuration, machine, software and surroundings are the same."
    return f"They differ in {facts.listed(other)} as well; what made the difference, no figure here can tell."


def _score(first: Judged, second: Judged) -> list[list[str]]:
    a, b = first.score, second.score
    per_joule = _per_joule(first), _per_joule(second)
    return [
        [
            "sustained OPS",
            rate(a.ops_per_second),
            rate(b.ops_per_second),
            _change(a.ops_per_second, b.ops_per_second),
        ],
        ["stable window, 95 % interval", _interval(a), _interval(b), ""],
        [
            "tensor OPS",
            rate(a.tensor_ops_per_second),
            rate(b.tensor_ops_per_second),
            _change(a.tensor_ops_per_second, b.tensor_ops_per_second),
        ],
        [
            "OPS a device",
            *(_per_device(one) for one in (first, second)),
            _change(_each(first), _each(second)),
        ],
        ["MFU", percent(a.mfu, 1), percent(b.mfu, 1), _points(a.mfu, b.mfu)],
        [
            "regulated score",
            _rate(a.regulated_score),
            _rate(b.regulated_score),
            _change(a.regulated_score, b.regulated_score),
        ],
        [
            "OPS/W, devices only",
            *("unknown" if one is None else scaled(one, "OPS/W") for one in per_joule),
            _change(*per_joule),
        ],
        ["test error", *(percent(_error(one)) for one in (a, b)), _points(_error(a), _error(b))],
        _controls(first, second),
        ["span", clock(a.span_seconds), clock(b.span_seconds), _change(a.span_seconds, b.span_seconds)],
        ["trials", *(f"{sum(one.trials.values()):,}" for one in (a, b)), ""],
        [
            "verdict",
            *(
                f"{facts.verdict_word(one.verdict, one.validated)}, {one.verdict.run_class.value}"
                for one in (first, second)
            ),
            "",
        ],
    ]


def _controls(*both: Judged) -> list[str]:
    """With the change where their images were equally large."""
    sizes = [control_sizes(each.replay) for each in both]
    rates = [None if (one := each.score.control) is None else one.images_per_second for each in both]
    told = [
        f"{figure(rate)} images/s at {size}" if rate else "not measured" for rate, size in zip(rates, sizes)
    ]
    return ["control", *told, _change(*rates) if sizes[0] == sizes[1] else ""]


def _per_joule(judged: Judged) -> float | None:
    usage = read_usage(judged.files, judged.replay)
    return usage.ops_per_joule(judged.score.goodput.operations)


def _time(first: Judged, second: Judged) -> list[list[str]]:
    a, b = (occupancy(one.replay, one.credit).shares for one in (first, second))
    return [[part, percent(a[part], 2), percent(b[part], 2), _points(a[part], b[part])] for part in PARTS]


def _machine(judged: Judged, other: Judged) -> dict[str, str]:
    replay = judged.replay
    own = sorted(_hosts(judged) - _hosts(other))
    more = f" and {len(own) - HOSTS_SHOWN:,} more" if len(own) > HOSTS_SHOWN else ""
    return {
        "devices": facts.devices_text(replay),
        "hosts that the other had not": ", ".join(own[:HOSTS_SHOWN]) + more,
        "groups": str(max((leg.groups for leg in replay.legs), default=0)),
        "backend": ", ".join(sorted({leg.began.backend for leg in replay.legs})),
        "images": str(replay.manifest.get("sha256", "none")),
    }


def _hosts(judged: Judged) -> set[str]:
    return {event.ready.host for leg in judged.replay.legs for event in leg.ranks}


def _software(judged: Judged) -> dict[str, str]:
    opened = judged.replay.opened
    return {**facts.software(judged.replay), "aiperf-hpc": opened.program, "its code": opened.code_hash}


def _differences(names: tuple[str, str], first: Mapping[str, object], second: Mapping[str, object]) -> Table:
    known = [name for name in [*first, *second] if first.get(name) != second.get(name)]
    rows = [
        [
            name,
            *("absent" if name not in one else facts.setting_text(one[name]) for one in (first, second)),
            "",
        ]
        for name in dict.fromkeys(known)
    ]
    return _table(names, rows)


def _table(names: tuple[str, str], rows: Sequence[Sequence[str]]) -> Table:
    return Table(("", *names, "difference"), rows, (False, True, True, True))


def _interval(score: Score) -> str:
    interval = score.timeline.stable_interval
    return "none" if interval is None else rates(*interval)


def _error(score: Score) -> float | None:
    return None if score.quality is None else score.quality.error


def _each(judged: Judged) -> float | None:
    devices = num_devices(judged.replay)
    return judged.score.ops_per_second / devices if devices else None


def _per_device(judged: Judged) -> str:
    return _rate(_each(judged))


def _rate(value: float | None) -> str:
    return "unknown" if value is None else rate(value)


def _change(first: float | None, second: float | None) -> str:
    return "" if not first or second is None else _signed(100 * (second / first - 1), "%")


def _points(first: float | None, second: float | None) -> str:
    """Of shares: in percentage points."""
    return "" if first is None or second is None else _signed(100 * (second - first), "points")


def _signed(value: float, unit: str) -> str:
    return f"{value:+.2f} {unit}".replace("-", "−")


def _plain(table: Table) -> str:
    rows = [[plain(cell) for cell in row] for row in (table.columns, *table.rows)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(table.columns))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if figure else cell.ljust(width)
            for cell, width, figure in zip(row, widths, table.figures)
        ).rstrip()
        for row in rows
    )
