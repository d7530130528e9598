"""Groups over time: what each trained, when it stood idle, when it was lost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from aiperf.trial import State
from aiperf.wording import clock, percent
from analysis.pages.figures.picture import Drawing, Key, Marks, Picture, marks_of
from analysis.pages.figures.style import COLOURS, Frame, canvas, clock_axis
from analysis.readings.occupancy import Bar, Occupancy
from analysis.readings.run_tables import listed
from analysis.table import Table

RASTERISED = 6_000
"""Bars beyond which they are drawn as an image."""
HOVERED = 6_000
"""Bars that a pointer finds; the longest of more."""
_COLOURS = {State.FAILED: "red", State.LOST: "plum"}
_WORDS = {
    "blue": "complete",
    "sky": "complete, every other one",
    "green": "stopped by the deadline or a limit, or still running",
    "red": "failed",
    "plum": "cut off: its group was lost, or the run killed",
}


def gantt(found: Occupancy) -> Picture:
    bars = sorted(found.bars, key=lambda bar: bar.begin - bar.end)
    height = 0.78 if found.num_groups <= 128 else 1.0
    boxes = {colour: _boxes(mine, height) for colour, mine in _coloured(bars).items()}

    def draw(frame: Frame) -> Drawing:
        row = 26 if found.num_groups <= 8 else max(1.6, min(14.0, 900 / found.num_groups))
        figure, (axes,) = canvas(frame, min(1000.0, max(90.0, found.num_groups * row)) + 40)
        axes.grid(visible=False)
        for colour, shape in boxes.items():
            patch = PathPatch(shape, facecolor=COLOURS[colour], lw=0, rasterized=len(bars) > RASTERISED)
            axes.add_artist(patch)
        _lost(axes, found)
        for begin in found.resumed:
            axes.axvline(begin, color=COLOURS["ink"], lw=0.8, dashes=(2, 3))
        axes.set_ylim(max(1, found.num_groups) - 0.5, -0.5)
        ticks = _ticks(found.num_groups)
        axes.set_yticks(ticks, [f"group {tick}" if tick == ticks[0] else str(tick) for tick in ticks])
        clock_axis(axes, max(found.span_seconds, 1e-9), frame)
        hovered = bars[:HOVERED]
        return Drawing(figure, lambda: _marks(axes, hovered))

    return Picture(
        name="groups",
        title="Groups over time",
        says=_says(found),
        draw=draw,
        table=_table(found),
        legend=_legend(set(boxes), found),
        empty=not bars and not found.lost,
    )


def _boxes(bars: Sequence[Bar], height: float) -> Path:
    """All bars of one colour as one shape."""
    begin, end, group = np.array([(bar.begin, bar.end, bar.group) for bar in bars]).T
    top, bottom = group - height / 2, group + height / 2
    corners = np.stack([begin, top, begin, bottom, end, bottom, end, top, begin, top], 1).reshape(-1, 2)
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(bars)
    return Path(corners, codes)


def _lost(axes: Axes, found: Occupancy) -> None:
    for group, begin, end in found.lost:
        axes.broken_barh(
            [(begin, end - begin)],
            (group - 0.39, 0.78),
            facecolor="none",
            hatch="////",
            edgecolor=COLOURS["plum"],
            lw=0.8,
        )


def _ticks(num_groups: int) -> list[int]:
    step = next(
        step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, num_groups) if num_groups / step <= 16
    )
    return list(range(0, num_groups, step))


def _marks(axes: Axes, bars: Sequence[Bar]) -> Marks:
    columns = np.array([(bar.begin, bar.end, bar.group) for bar in bars]).reshape(-1, 3)
    return Marks(marks_of(axes, columns[:, 0], columns[:, 1], columns[:, 2]), [bar.trial for bar in bars])


def _coloured(bars: Sequence[Bar]) -> dict[str, list[Bar]]:
    """Bars by colour, which stands for their state. Complete trials of a group have two colours in turn, so
    that neighbours can be told apart."""
    found: dict[str, list[Bar]] = {colour: [] for colour in _WORDS}
    turns: dict[int, int] = {}
    for bar in sorted(bars, key=lambda bar: bar.begin):
        turn = turns[bar.group] = turns.get(bar.group, 0) + 1
        if bar.state is State.COMPLETE:
            found[("sky", "blue")[turn % 2]].append(bar)
        else:
            found[_COLOURS.get(bar.state, "green")].append(bar)
    return {colour: mine for colour, mine in found.items() if mine}


def _legend(colours: set[str], found: Occupancy) -> list[Key]:
    there = [Key(colour, text) for colour, text in _WORDS.items() if colour in colours]
    if found.lost:
        there.append(Key("plum", "the group was lost", "hatch"))
    if found.resumed:
        there.append(Key("ink", "the run was resumed", "line"))
    return there


def _table(found: Occupancy) -> Table:
    rows: list[list[str]] = []
    keys: list[list[float | str | None]] = []
    by_group: dict[int, list[Bar]] = {}
    for bar in found.bars:
        by_group.setdefault(bar.group, []).append(bar)
    lost_for = dict.fromkeys(range(found.num_groups), 0.0)
    for group, begin, end in found.lost:
        lost_for[group] += end - begin
    for group in range(found.num_groups):
        mine = by_group.get(group, [])
        busy = sum(bar.end - bar.begin for bar in mine) / max(found.span_of_group[group], 1e-9)
        gone = lost_for[group]
        num_failed = sum(bar.state is State.FAILED for bar in mine)
        rows.append(
            [
                str(group),
                str(len(mine)),
                str(num_failed),
                percent(float(busy), 1),
                clock(gone) if gone else "no",
            ]
        )
        keys.append([group, len(mine), num_failed, float(busy), gone])
    return Table(
        ("group", "trials", "failed", "busy", "lost for"), rows, (True, True, True, True, True), keys
    )


def _says(found: Occupancy) -> str:
    if not found.bars and not found.lost:
        return "No trial has begun."
    groups, trials = found.num_groups, len({bar.trial for bar in found.bars})
    text = (
        f"{groups:,} group{'' if groups == 1 else 's'} worked on {trials:,} trial{'' if trials == 1 else 's'}"
    )
    busy = sum(bar.end - bar.begin for bar in found.bars) / max(float(found.span_of_group.sum()), 1e-9)
    text += f"; a bar covers {percent(busy, 1)} of their time"
    if found.lost:
        named = ", ".join(f"{group} at {clock(begin)}" for group, begin, _ in found.lost[:5])
        more = f" and {len(found.lost) - 5} more" if len(found.lost) > 5 else ""
        text += f". Lost: group {named}{more}"
    if found.resumed:
        times = [clock(begin) for begin in found.resumed[:5]]
        if len(found.resumed) > len(times):
            times.append(f"{len(found.resumed) - len(times)} times more")
        text += f". Resumed at {listed(times)}"
    return text + "."
