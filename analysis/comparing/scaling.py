"""Weak scaling: runs of one kind at several sizes, against the smallest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from aiperf.journal.events import Origin
from aiperf.journal.mark import Mark, mark_of, marked
from aiperf.wording import counted, harmless, plain, rates
from analysis.comparing.comparability import refuse_mixed
from analysis.readings import run_tables
from analysis.readings.judgement import Judged
from analysis.readings.score_figures import COUNT, SHARE, Figure, figures, num_devices
from analysis.table import Cell, Table, comma_separated
from nas.frozen import frozen

CSV_COLUMNS = (
    *("run", "nodes", "devices", "ops_per_second", "efficiency", "error"),
    *("training_share", "busy_share", "mfu", "coupled_share", "verdict", "aiperf1_ops_per_second"),
)


@frozen
class ScalingPoint:
    """One run of the study. What is not known is None."""

    run: str
    """Name of the run."""
    nodes: int
    """Most hosts in one leg."""
    devices: int
    """Number of ranks; each has one device."""
    ops_per_second: float
    """Sustained OPS of all devices."""
    interval: tuple[float, float] | None
    """95 % interval of the OPS in the stable window; None without such a window."""
    efficiency: float
    """Weak scaling efficiency, (OPS_N / N) / (OPS_N0 / N0); N are devices."""
    training_share: float
    """Share of its time that a group trained, as a mean over the groups."""
    busy_share: float
    """The same with the validations: the utilisation."""
    verdict: str
    """The verdict and the class, in words."""
    figures: Mapping[str, Figure]
    """Figures of its score, by key."""


@frozen
class Scaling:
    """A weak-scaling study: the work per device is the same at each size."""

    points: Sequence[ScalingPoint]
    """Runs from the smallest to the largest."""
    base_devices: int
    """N0, the number of devices of the smallest runs."""
    base_ops_per_second: float
    """Mean of the runs of that size."""
    origin: Origin = Origin.MEASURED
    """Origin of all runs; runs of two origins are refused."""

    @property
    def mark(self) -> Mark | None:
        """The mark of all runs; None if they were measured."""
        return mark_of(self.origin)

    @property
    def subject(self) -> str:
        """What the study shows. Weak scaling is a word for measured runs: others are models."""
        return "weak scaling" if self.mark is None else "overhead of search, dispatch and storage"


def scaling(runs: Sequence[Judged]) -> Scaling:
    """Raises MixedError, as `refuse_mixed`."""
    refuse_mixed(runs)
    sizes = [num_devices(run.replay) for run in runs]
    base = min(sizes)
    # The mean of all runs of the smallest size, so that one lucky run does not lower all efficiencies.
    of_base = [run.score.ops_per_second for run, size in zip(runs, sizes) if size == base]
    base_rate = sum(of_base) / len(of_base)
    points = [_point(run, size, base, base_rate) for run, size in zip(runs, sizes)]
    in_order = sorted(points, key=lambda point: (point.devices, point.run))
    return Scaling(in_order, base, base_rate, runs[0].replay.opened.origin)


def table(found: Scaling) -> Table:
    """The table of the page, a row for each run."""
    rows = [_row(point, found) for point in found.points]
    figures = (False, *[True] * (len(rows[0]) - 3), False, True)
    return Table.of(rows[0], [row.values() for row in rows], figures)


def _row(point: ScalingPoint, found: Scaling) -> Mapping[str, Cell]:
    """The cells by column. Only the run and the figures that a study is made for are marked: marks at all
    figures would make the table wider than a page."""
    known = point.figures
    low, interval = (point.interval[0], rates(*point.interval)) if point.interval else (0.0, "none")
    sustained = known["ops_per_second"]
    relative = f"efficiency relative to {counted(found.base_devices, 'device')}"
    efficiency = Figure(relative, point.efficiency, SHARE, mark=found.mark)
    before = [Figure("nodes", point.nodes, COUNT), known["devices"]]
    after = [known["error"], Figure("training", point.training_share, SHARE), known["mfu"]]
    after += [known["coupled_share"]] * any(point.figures["coupled_share"].value for point in found.points)
    each, last = known["ops_per_second_per_device"], known["aiperf1_ops_per_second"]
    return {
        "run": marked(point.run, found.mark),
        **{one.name: one.cell for one in before},
        sustained.label: sustained.cell,
        "95 % interval": (interval, low),
        each.name: each.cell,
        efficiency.label: efficiency.cell,
        **{one.name: one.cell for one in after},
        "verdict": point.verdict,
        last.name: last.cell,
    }


def csv_text(found: Scaling) -> str:
    """All figures unrounded; an empty cell is not known. Each line of runs that were not measured begins with
    their origin."""
    origin, lines = {} if found.mark is None else {"origin": found.mark.word}, []
    for point in found.points:
        known = {**vars(point), **{key: one.value for key, one in point.figures.items()}}
        cells = [known[name] for name in CSV_COLUMNS]
        cells = [harmless(cell) if isinstance(cell, str) else cell for cell in cells]
        lines.append([*origin.values(), *cells, *(point.interval or (None, None)), found.base_devices])
    return comma_separated([*origin, *CSV_COLUMNS, "interval_low", "interval_high", "base_devices"], lines)


def markdown_text(found: Scaling) -> str:
    """The table for a README or an issue."""
    content = table(found)
    rows = [
        content.columns,
        ["-:" if figure else "-" for figure in content.figures],
        # A run may have any name, so Markdown's characters are escaped.
        *[[re.sub(r"([\\|<`\[])", r"\\\1", plain(cell)) for cell in row] for row in content.rows],
    ]
    above = "" if found.mark is None else f"{found.mark.line}\n\n"
    return above + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _point(run: Judged, devices: int, base: int, base_rate: float) -> ScalingPoint:
    """One run, relative to the mean rate of the smallest runs."""
    score = run.score
    return ScalingPoint(
        run=run.replay.opened.run_id,
        nodes=max(len({event.ready.host for event in leg.ranks}) for leg in run.replay.counted_legs),
        devices=devices,
        ops_per_second=score.ops_per_second,
        interval=score.timeline.stable_interval,
        efficiency=(score.ops_per_second / devices) / (base_rate / base),
        training_share=sum(share.train for share in score.shares) / max(1, len(score.shares)),
        busy_share=sum(1 - share.rest for share in score.shares) / max(1, len(score.shares)),
        verdict=run_tables.verdict_and_class(run.verdict, run.validated),
        figures=figures(run.replay, score),
    )
