"""Groups over time: what each trained, when it stood idle, when it was lost; and where their time went.

The first figure shows when, the second how much. A gap before a bar is the wait for a network, a long one at
the end a group without work; both cost sustained OPS, which count the whole span.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from aiperf.wire.trial import State
from aiperf.wording import clock, counted, percent
from analysis.pages.figures.picture import COLOURS, Drawing, Frame, Key, Picture, canvas, clock_axis, pointed
from analysis.readings.occupancy import PART_TEXTS, PARTS, Bar, Occupancy
from analysis.readings.run_tables import listed
from analysis.table import Cell, Table

RASTERISED = 6_000
"""Bars beyond which they are drawn as an image, since each takes some fifty bytes of the page."""
HOVERED = 6_000
"""Most bars that a pointer finds: the longest of more, because a bar of less than a pixel cannot be pointed
at."""
LOST_SHOWN = 5
"""Most lost groups, and most resumptions, that are named in the text."""
STATES = {State.FAILED: "red", State.LOST: "plum"}
"""Colours of states other than COMPLETE; all others are green."""
STATE_TEXTS = {
    "blue": "complete",
    "sky": "complete, every other one",
    "green": "stopped by the deadline or a limit, or still running",
    "red": "failed",
    "plum": "cut off: its group was lost, or the run killed",
}
"""What a colour of a bar stands for, in the order of the legend. Every other trial that is complete has
another blue, so that neighbours can be told apart."""
PART_COLOURS: Mapping[str, str] = {
    "train": "blue",
    "validate": "sky",
    "prepare": "amber",
    "wait": "faint",
    "lost": "plum",
}
"""Colours of the parts of time, in the order of the bars."""


def gantt(found: Occupancy) -> Picture:
    """A bar per trial in the row of its group, in the colour of how it ended; a hatched one where a group was
    lost. The longest bars are first, because a pointer finds only so many."""
    bars = sorted(found.bars, key=lambda bar: bar.begin - bar.end)  # the longest first
    # Rows of many groups are a few pixels high: gaps between them would be all that is seen.
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
        clock_axis(axes, found.span_seconds, frame)
        hovered = bars[:HOVERED]
        begin, end, group = np.array([(bar.begin, bar.end, bar.group) for bar in hovered]).reshape(-1, 3).T
        return pointed(figure, axes, begin, group, [bar.trial for bar in hovered], end)

    return Picture(
        name="groups",
        title="Groups over time",
        says=_says(found),
        draw=draw,
        table=_table(found),
        legend=_legend(set(boxes), found),
        empty=not bars and not found.lost,
        covers=True,
    )


def _boxes(bars: Sequence[Bar], height: float) -> Path:
    """All bars of one colour as one shape."""
    begin, end, group = np.array([(bar.begin, bar.end, bar.group) for bar in bars]).T
    top, bottom = group - height / 2, group + height / 2
    corners = np.stack([begin, top, begin, bottom, end, bottom, end, top, begin, top], 1).reshape(-1, 2)
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(bars)
    return Path(corners, codes)


def _lost(axes: Axes, found: Occupancy) -> None:
    """Draws the times after a group was lost, hatched, because nothing was trained then."""
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
    """Numbers of groups at round distances, at most 16 of them: more would overlap."""
    step = next(
        step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, num_groups) if num_groups / step <= 16
    )
    return list(range(0, num_groups, step))


def _coloured(bars: Sequence[Bar]) -> dict[str, list[Bar]]:
    """Bars by colour, which stands for their state. Complete trials of a group have two colours in turn, so
    that neighbours can be told apart."""
    found: dict[str, list[Bar]] = {colour: [] for colour in STATE_TEXTS}
    turns: dict[int, int] = {}
    for bar in sorted(bars, key=lambda bar: bar.begin):
        # Counted over all trials of the group, so that colours alternate around a failure, too.
        turn = turns[bar.group] = turns.get(bar.group, 0) + 1
        if bar.state is State.COMPLETE:
            found[("sky", "blue")[turn % 2]].append(bar)
        else:
            found[STATES.get(bar.state, "green")].append(bar)
    return {colour: mine for colour, mine in found.items() if mine}


def _legend(colours: set[str], found: Occupancy) -> list[Key]:
    """Entries for what is drawn only: most runs have no failure and no loss."""
    there = [Key(colour, text) for colour, text in STATE_TEXTS.items() if colour in colours]
    if found.lost:
        there.append(Key("plum", "the group was lost", "hatch"))
    if found.resumed:
        there.append(Key("ink", "the run was resumed", "line"))
    return there


def _table(found: Occupancy) -> Table:
    """One row per group. Shares of time are relative to the time in which the group existed."""
    by_group: dict[int, list[Bar]] = {}
    for bar in found.bars:
        by_group.setdefault(bar.group, []).append(bar)
    lost_for = dict.fromkeys(range(found.num_groups), 0.0)
    for group, begin, end in found.lost:
        lost_for[group] += end - begin
    cells: list[list[Cell]] = []
    for group, gone in lost_for.items():
        mine = by_group.get(group, [])
        busy = float(sum(bar.end - bar.begin for bar in mine) / max(found.span_of_group[group], 1e-9))
        num_failed = sum(bar.state is State.FAILED for bar in mine)
        counts: list[Cell] = [(str(number), number) for number in (group, len(mine), num_failed)]
        cells.append([*counts, (percent(busy, 1), busy), (clock(gone) if gone else "no", gone)])
    return Table.of(("group", "trials", "failed", "busy", "lost for"), cells, (True,) * 5)


def _says(found: Occupancy) -> str:
    """How many groups and trials there were, how busy the groups were, and which of them were lost."""
    if not found.bars and not found.lost:
        return "No trial has begun."
    trials = len({bar.trial for bar in found.bars})
    whose = "its" if found.num_groups == 1 else "their"
    text = f"{counted(found.num_groups, 'group')} began {counted(trials, 'trial')}"
    busy = sum(bar.end - bar.begin for bar in found.bars) / max(float(found.span_of_group.sum()), 1e-9)
    text += f"; bars, a trial each, cover {percent(busy, 1)} of {whose} time"
    if found.lost:
        named = ", ".join(f"{group} at {clock(begin)}" for group, begin, _ in found.lost[:LOST_SHOWN])
        more = f" and {len(found.lost) - LOST_SHOWN} more" if len(found.lost) > LOST_SHOWN else ""
        text += f". Lost: group {named}{more}"
    if found.resumed:
        times = [clock(begin) for begin in found.resumed[:LOST_SHOWN]]
        if len(found.resumed) > len(times):
            times.append(f"{len(found.resumed) - len(times)} times more")
        text += f". Resumed at {listed(times)}"
    return text + "."


def time_shares(found: Occupancy) -> Picture:
    """Shares of time: all groups as one bar; of several groups, those with least and most training below
    it."""
    shares = found.shares
    bars = _bars(found)

    def draw(frame: Frame) -> Drawing:
        figure, (axes,) = canvas(frame, 30 + 34 * len(bars))
        axes.grid(visible=False)
        axes.spines["bottom"].set_visible(False)
        left = np.zeros(len(bars))
        begins, ends = list[float](), list[float]()  # part by part, as the labels
        for part in PARTS:
            values = np.array([values[part] for _, values in bars])
            colour = COLOURS[PART_COLOURS[part]]
            axes.barh(range(len(bars)), values, left=left, height=0.62, color=colour, lw=0)
            begins += left.tolist()
            left = left + values
            ends += left.tolist()
        axes.set_xlim(0, 1)
        axes.set_ylim(len(bars) - 0.5, -0.5)
        axes.set_yticks(range(len(bars)), [name for name, _ in bars])
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
        return pointed(figure, axes, begins, [*range(len(bars))] * len(PARTS), right=ends)

    labels = [
        f"{name}\n{PART_TEXTS[part]}: {percent(values[part], 1)}" for part in PARTS for name, values in bars
    ]
    total = float(found.span_of_group.sum())
    cells: list[list[Cell]] = [
        [
            PART_TEXTS[part],
            (percent(shares[part], 2), shares[part]),
            (clock(shares[part] * total), shares[part] * total),
        ]
        for part in PARTS
    ]
    said = ", ".join(f"{percent(shares[part], 1)} {PART_TEXTS[part]}" for part in PARTS)
    return Picture(
        name="time",
        title="Where the time went",
        says=f"Shares of the groups' time in the span: {said}." if total else "There is no span yet.",
        draw=draw,
        table=Table.of(("part", "share", "group time"), cells, (False, True, True)),
        legend=[Key(PART_COLOURS[part], PART_TEXTS[part]) for part in PARTS],
        labels=labels,
        empty=not total,
        covers=True,
    )


def _bars(found: Occupancy) -> list[tuple[str, dict[str, float]]]:
    """The bars from the top: all groups, the group that trained most, and the one that trained least."""
    bars = [("all", found.shares)]
    there = [group for group in range(found.num_groups) if found.span_of_group[group] > 0]
    if len(there) < 2:
        return bars
    order = sorted(there, key=lambda group: found.seconds[group, 0] / found.span_of_group[group])
    for group in dict.fromkeys((order[-1], order[0])):
        values = found.seconds[group] / found.span_of_group[group]
        bars.append((f"group {group}", dict(zip(PARTS, map(float, values)))))
    return bars
