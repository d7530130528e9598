"""The spread of repeated runs for a terminal, and as JSON, which is read again.

The terminal has the runs, then what they have in common, then which cause explains how much: a reader who
doubts a variation finds the runs that it was computed from above it. The JSON is the input of `compare
--spread`, so it holds the figures of each run, and everything else is computed again when it is read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from aiperf import __version__
from aiperf.errors import AiperfError
from aiperf.journal import strict
from aiperf.journal.mark import mark_of, marked
from aiperf.wording import counted, figure, percent, plain, rate, rates
from analysis.comparing.repeatability import FIGURES, RepeatedRuns, causes, varied
from analysis.table import aligned
from nas.record import RecordError, decode, encode

FORM = "aiperf-hpc/spread/1"
"""The form of the JSON; another number is for other keys."""
RATES = ("ops_per_second", "regulated_score", "ceiling_ops_per_second")
"""Figures in operations per second; the control is in examples per second, the error a share."""

EXPLAINED = """\
disturbed: share of the CPU time of a host that other programs used, on the host where it is largest
unsteady: share of the time of steps that would have been saved at the rate of each network's fastest tenth
variation: the standard deviation of a sample of runs / their mean
interval of the median: by order statistics, for any distribution; with its probability
choices: what is measured and chosen before the span: format, threads, engines of the steps
"""


def spread_json(found: RepeatedRuns) -> str:
    """The runs, and for other programs what follows from them."""
    figures = {key: asdict(varied(found, key)) for key in FIGURES}
    content = {"form": FORM, "program": __version__, "spread": encode(found), "figures": figures}
    return json.dumps({**content, "causes": [asdict(each) for each in causes(found)]}, indent=1) + "\n"


def read_spread(raw: bytes, where: str) -> RepeatedRuns:
    """The spread in an output of `spread_json`. Raises AiperfError, which names `where`."""
    try:
        record = strict.parsed(raw)
        if not isinstance(record, dict) or record.get("form") != FORM:
            raise ValueError(f"it has no form {FORM}")
        found = decode(RepeatedRuns, record.get("spread"))
        if lacking := [run.run for run in found.runs if run.figures.keys() != FIGURES.keys()]:
            raise ValueError(f"run {lacking[0]!r:.80} does not have the figures {', '.join(FIGURES)}")
    except (ValueError, RecursionError, RecordError) as error:
        raise AiperfError(
            f"{where} is not a spread: {error}; `aiperf-hpc spread RUN... --json` writes one"
        ) from None
    return found


def spread_text(found: RepeatedRuns) -> str:
    """The spread as text for a terminal: each run, each figure over all runs, and each cause."""
    mark = mark_of(found.origin)
    of = f"{counted(len(found.runs), 'run')} of {found.kind}, {counted(found.seeds, 'random seed')}"
    parts = [
        *([mark.line] if mark else []),
        plain(f"{of}: {found.machine}"),
        _runs_text(found),
        _figures_text(found),
        *_causes_texts(found),
        EXPLAINED.rstrip(),
    ]
    return "\n\n".join(parts) + "\n"


def _runs_text(found: RepeatedRuns) -> str:
    """A row for each run, in the order in which they began."""
    rows = [
        [
            *(run.run, str(run.random_seed)),
            *(_value(key, run.figures[key]) for key in FIGURES),
            *(_share(run.disturbed), _share(run.unsteady), run.choices),
        ]
        for run in found.runs
    ]
    return _aligned([["run", "seed", *FIGURES.values(), "disturbed", "unsteady", "choices"], *rows])


def _figures_text(found: RepeatedRuns) -> str:
    """A row for each figure over all runs."""
    mark, rows = mark_of(found.origin), []
    for key, name in FIGURES.items():
        one = varied(found, key)
        label = f"{name}, {found.control}" if key == "control_per_second" else name
        interval = "not known"
        if one.probability is not None:
            interval = f"{_between(key, one.low, one.high)} ({percent(one.probability, 1)})"
        values = _value(key, one.median), _between(key, one.least, one.greatest), _share(one.variation)
        rows.append([marked(label, mark), str(one.runs), *values, interval])
    return _aligned([["", "runs", "median", "range", "variation", "interval of the median"], *rows])


def _causes_texts(found: RepeatedRuns) -> list[str]:
    """The table of causes that at least one pair of runs shows; then the runs that the others need."""
    rows = [
        [cause.name, str(cause.runs), str(cause.pairs), *map(_share, cause.variations.values())]
        for cause in causes(found)
        if cause.pairs
    ]
    table = _aligned([["variation of runs with", "runs", "pairs", *FIGURES.values()], *rows])
    unknown = [f"{cause.name}: not known; {cause.needs}" for cause in causes(found) if not cause.pairs]
    return [table, "\n".join(unknown)] if unknown else [table]


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns; names of runs may have any characters, and are made harmless for a terminal."""
    return aligned([[plain(cell) for cell in row] for row in rows])


def _share(value: float | None) -> str:
    """A variation in per cent, which is rough: one decimal."""
    return "not known" if value is None else percent(value, 1)


def _value(key: str, value: float | None) -> str:
    """A figure with its unit: OPS, per cent for an error, else a number."""
    if value is None:
        return "not known"
    if key in RATES:
        return rate(value)
    return percent(value) if key == "error" else figure(value)


def _between(key: str, low: float | None, high: float | None) -> str:
    """A range, with its unit once."""
    if low is None or high is None:
        return "not known"
    return rates(low, high) if key in RATES else f"{_value(key, low)} to {_value(key, high)}"
