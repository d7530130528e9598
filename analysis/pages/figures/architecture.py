"""An architecture from top to bottom: its units as boxes, what its line of morphisms changed in colour.

A unit is a layer with the norm and the activation that follow it, and equal blocks in a row are drawn once.
Positions are computed here, in units that are pixels, because a general layout of graphs is neither stable
from trial to trial nor as narrow as a telephone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Rectangle

from aiperf.wording import counted
from analysis.pages.figures.picture import COLOURS, Drawing, Frame, Key, Marks, Picture, canvas
from analysis.readings.architecture import SEED, Architecture, LayerUnit, Repeated, UnitBlock
from analysis.table import Table
from nas.frozen import frozen
from nas.layers import Shape

ROW, BOX = 25.0, 18.0
"""Heights of a row of units and of the box in it."""
GAP, INSET = 11.0, 6.0
"""Distance between two blocks, in which their line shows, and margin around the units of one."""
HALF = (ROW - BOX) / 2
"""Distance from the edge of a row to its box, in which lines turn."""
LINES_APART, MOST_BESIDE = 6, 3
"""Distance between lines that pass next to all boxes of a block, and number of their places; more lines share
places."""
BESIDE = 20.0
"""Width that is kept for those lines."""
LETTER = 0.58
"""Mean width of a letter of DejaVu Sans, as a share of the font's size."""
WIDEST = 260.0
"""Greatest width of a lane."""
Box = tuple[float, float, float]
"""Left and right edge of a box, and the height of its middle."""


def architecture_picture(found: Architecture, best: int) -> Picture:
    """The picture of the network of trial `best`. `found` is the line of descent as `analysis.readings` took
    it apart; equal blocks come as one part."""
    lanes = max(
        max(lane for _, lane in places_of(block)) + 1 for part in found.parts for block in part.blocks
    )

    def draw(frame: Frame) -> Drawing:
        narrow = frame.narrow
        layout = Layout(frame, 8 if narrow else 150, frame.width - (8 if narrow else 130), lanes)
        height = 34 + sum(height_of(part, layout) + GAP for part in found.parts)
        figure, (axes,) = canvas(frame, height)
        # A unit of the axes is a unit of the drawing, so boxes and their texts fit at any width.
        figure.set_layout_engine("none")
        axes.set_position((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set_xlim(0, frame.width)
        # Downwards, as the network is read.
        axes.set_ylim(height, 0)
        middle = centre(layout, 0)
        write(axes, middle, 8, shown(found.input), layout, "soft", ha="center")
        top, boxes = 18.0, list[Box]()
        for part in found.parts:
            axes.plot([middle, middle], [top - 2, top + GAP], color=COLOURS["soft"], lw=1, zorder=1)
            top, new = draw_part(axes, part, top + GAP, layout, best)
            boxes += new
        return Drawing(figure, lambda: Marks(np.array(boxes), range(len(boxes))))

    legend = [Key("faint", "as in the seed")]
    if any(unit.touch.trial not in (SEED, best) for unit in _all(found)):
        legend.append(Key("sky", "changed earlier in its line; the number is that trial's"))
    if any(unit.touch.trial == best for unit in _all(found)):
        legend.append(Key("amber", f"new in trial {best}, or changed from its parent"))
    return Picture(
        name="architecture",
        title="Best network",
        says=_says(found, best),
        draw=draw,
        table=_steps(found) if found.steps else None,
        legend=legend,
        labels=[_label(unit) for unit in _all(found)],
    )


def _all(found: Architecture) -> Iterator[LayerUnit]:
    """Every unit of the network, each repeated part once, in the order in which the boxes are drawn."""
    for part in found.parts:
        for block in part.blocks:
            yield from block.units


def _label(unit: LayerUnit) -> str:
    """The text of the tooltip."""
    lines = [unit.name, " · ".join([unit.text, *unit.after]), f"output {shown(unit.shape)}"]
    touch = unit.touch
    if touch.trial != SEED:
        what = "new in" if touch.is_new else "changed by"
        lines.append(f"{what} trial {touch.trial}" + (f", was {touch.was}" if touch.was else ""))
    return "\n".join(lines)


def _says(found: Architecture, best: int) -> str:
    """How many boxes there are, and how the network differs from its parent."""
    num = sum(part.times * sum(len(block.units) for block in part.blocks) for part in found.parts)
    text = f"The network of trial {best}: {num} boxes, each a layer with the norm and activation after it"
    if any(part.times > 1 for part in found.parts):
        text += "; equal blocks in a row are drawn once"
    if not found.steps or all(not step.morphisms for step in found.steps):
        return f"{text}. It is the seed itself."
    last = found.steps[-1]
    parts = [(len(last.new), "new layer"), (len(last.changed), "changed layer")]
    seen = " and ".join(counted(num, what) for num, what in parts if num)
    changed = f"has {seen}" if seen else "has the same architecture"
    kinds = ", ".join(last.morphisms) or "trained on"
    return f"{text}. Compared with its parent ({kinds}) it {changed}."


def _steps(found: Architecture) -> Table:
    """One row per ancestor, from the seed on, with what its morphisms changed."""
    rows = [
        [
            str(step.trial),
            ", ".join(step.morphisms) or "none",
            "; ".join(step.new) or "none",
            "; ".join(step.changed) or "none",
            f"{step.parameters:,}",
        ]
        for step in found.steps
    ]
    return Table(
        ("trial", "morphism", "new", "changed", "parameters"), rows, (True, False, False, False, True)
    )


@frozen
class Layout:
    """Where the columns of a frame are."""

    frame: Frame
    left: float
    """Left edge of the blocks; their names are to its left, or above the block in a narrow frame."""
    right: float
    """Right limit of the blocks; shapes are written to the right of a block."""
    lanes: int
    """Most boxes side by side in any block: all blocks have room for as many."""

    @property
    def lane(self) -> float:
        """Width of a lane: the blocks share the room between the edges, up to WIDEST."""
        return min(WIDEST, (self.right - self.left - 2 * INSET - BESIDE) / self.lanes)

    @property
    def font(self) -> float:
        """Size of the font; as small as can be read on a narrow screen."""
        return self.frame.font_size - (1.0 if self.frame.narrow else 2.5)

    @property
    def heading(self) -> float:
        """Height of the line above a part, which only a narrow frame has: in a wide one names stand to the
        left."""
        return 14.0 if self.frame.narrow else 0.0


def places_of(block: UnitBlock) -> list[tuple[int, int]]:
    """Row and lane of each unit: below all units that it reads, in the leftmost lane of these or the next
    free one to the right."""
    places: list[tuple[int, int]] = []
    taken: set[tuple[int, int]] = set()
    for unit in block.units:
        inside = [places[read] for read in unit.reads if read is not None]
        row = max((above + 1 for above, _ in inside), default=0)
        lane = min((lane for _, lane in inside), default=0)
        while (row, lane) in taken:
            lane += 1
        taken.add((row, lane))
        places.append((row, lane))
    return places


def height_of(part: Repeated, layout: Layout) -> float:
    """Height of a part in units of the drawing, with the heading above it in a narrow frame."""
    rows = [max(row for row, _ in places_of(block)) + 1 for block in part.blocks]
    inside = GAP * (len(rows) - 1)
    return sum(ROW * num + 2 * INSET for num in rows) + inside + layout.heading


def draw_part(axes: Axes, part: Repeated, top: float, layout: Layout, best: int) -> tuple[float, list[Box]]:
    """Draws the part below `top`, and returns its lower edge and its boxes."""
    bottom = top + height_of(part, layout)
    right = layout.left + 2 * INSET + layout.lane * layout.lanes + BESIDE
    if part.times > 1:
        corner = layout.left - 4, top - 4 + layout.heading
        size = right - layout.left + 8, bottom - top + 8 - layout.heading
        axes.add_patch(
            Rectangle(corner, *size, fill=False, ec=COLOURS["soft"], lw=0.9, ls=(0, (4, 3)), zorder=0)
        )
    name = _name(part)
    if layout.frame.narrow:
        write(axes, layout.left, top + 5, f"{name}  → {shown(part.blocks[-1].shape)}", layout, "soft")
    else:
        write(axes, layout.left - 14, top + INSET + ROW / 2, name, layout, "soft", ha="right")
        write(axes, right + 14, bottom - INSET - ROW / 2, shown(part.blocks[-1].shape), layout, "soft")
    below = top + layout.heading
    boxes: list[Box] = []
    for place, block in enumerate(part.blocks):
        if place:
            middle = centre(layout, 0)
            axes.plot([middle, middle], [below - 2, below + GAP], color=COLOURS["soft"], lw=1, zorder=1)
            below += GAP
        below, new = _block(axes, block, below, right, layout, best)
        boxes += new
    return bottom, boxes


def _block(
    axes: Axes, block: UnitBlock, top: float, right: float, layout: Layout, best: int
) -> tuple[float, list[Box]]:
    """Draws one block below `top` with the lines between its boxes; returns its lower edge and its boxes. A
    line that would cross other boxes passes to the right of them all."""
    places = places_of(block)
    height = ROW * (max(row for row, _ in places) + 1) + 2 * INSET
    ground = (layout.left, top), right - layout.left, height
    axes.add_patch(Rectangle(*ground, fc=COLOURS["faint"], alpha=0.45, lw=0, zorder=0))
    beside, boxes = 0, list[Box]()
    for unit, (row, lane) in zip(block.units, places):
        x, y = centre(layout, lane), top + INSET + ROW * (row + 0.5)
        for read in unit.reads:
            from_row, from_lane = (-1, 0) if read is None else places[read]
            begin = centre(layout, from_lane)
            start = top if read is None else top + INSET + ROW * (from_row + 0.5) + BOX / 2
            in_the_way = {(other, from_lane) for other in range(from_row + 1, row)}
            if row - from_row > 1 and (from_lane != lane or not in_the_way.isdisjoint(places)):
                gutter = right - 7 - LINES_APART * (beside % MOST_BESIDE)
                beside += 1
                points = [(begin, start), (begin, start + HALF), (gutter, start + HALF)]
                if any(other == row and further > lane for other, further in places):
                    points += [(gutter, y - BOX / 2 - HALF), (x, y - BOX / 2 - HALF), (x, y)]
                else:
                    points += [(gutter, y), (x, y)]
            else:
                bend = y - BOX / 2 - HALF
                points = [(begin, start), (begin, bend), (x, bend), (x, y - BOX / 2)]
            axes.plot(*zip(*points), color=COLOURS["soft"], lw=1, zorder=1, solid_joinstyle="round")
        _box(axes, unit, x, y, layout, best)
        boxes.append((x - layout.lane / 2 + 5, x + layout.lane / 2 - 5, y))
    last_row, last_lane = places[-1]
    bottom = top + height
    points = [
        (centre(layout, last_lane), top + INSET + ROW * (last_row + 0.5)),
        (centre(layout, last_lane), bottom - 3),
        (centre(layout, 0), bottom - 3),
        (centre(layout, 0), bottom),
    ]
    axes.plot(*zip(*points), color=COLOURS["soft"], lw=1, zorder=1)
    return bottom, boxes


def _box(axes: Axes, unit: LayerUnit, x: float, y: float, layout: Layout, best: int) -> None:
    """Draws the box of a unit: amber if trial `best` made or changed it, sky if an ancestor did. Its text is
    the fullest that fits."""
    touch, width = unit.touch, layout.lane - 10
    colour = None if touch.trial == SEED else "amber" if touch.trial == best else "sky"
    edge, line = COLOURS["soft" if colour is None else colour], 0.8 if colour is None else 2.0
    grounds = [(COLOURS["paper"], 1.0, line)]
    if colour is not None:  # a tint, on which ink is read by day and by night
        grounds.append((COLOURS[colour], 0.25, 0.0))
    for ground, alpha, width_of_edge in grounds:
        corner = x - width / 2 + 2, y - BOX / 2 + 2
        box = FancyBboxPatch(corner, width - 4, BOX - 4, boxstyle="round,pad=2", zorder=2)
        box.set(facecolor=ground, edgecolor=edge, alpha=alpha, linewidth=width_of_edge)
        axes.add_patch(box)
    number = f" · {touch.trial}" if touch.trial not in (SEED, best) else ""
    texts, room = _texts(unit, touch.trial == best), int((width - 6) / (LETTER * layout.font))
    # The colour tells as much as the number, so the number goes before the text is cut.
    fits = [text for text in (*(text + number for text in texts), texts[-1]) if len(text) <= room]
    text = fits[0] if fits else f"{texts[-1][: max(1, room - 1)]}…"
    write(axes, x, y, text, layout, "ink", ha="center")


def _texts(unit: LayerUnit, is_last: bool) -> Sequence[str]:
    """Texts for a box, from the fullest to the shortest: the first that fits is drawn."""
    short = unit.text.replace(" in ", " g").replace(" groups", "")
    tail = "".join(f" · {kind}" for kind in unit.after)
    mark = ""
    if is_last:
        mark = " (new)" if unit.touch.is_new else f" (was {unit.touch.was})" if unit.touch.was else ""
    brief = tail.replace("batch norm", "BN")
    numbers = short.replace(" conv", "").replace("linear ", "").replace("depthwise", "dw")
    numbers = numbers.replace("global ", "").replace(" heads", "h")
    return (unit.text + mark + tail, unit.text + mark + brief, unit.text + mark, unit.text, short, numbers)


def centre(layout: Layout, lane: int) -> float:
    """The middle of a lane, from the left edge of the drawing."""
    return layout.left + INSET + layout.lane * (lane + 0.5)


def _name(part: Repeated) -> str:
    """The name of a part; of equal blocks in a row, their number and the range of their names."""
    first = part.blocks[0].name
    if part.times == 1:
        return first
    # The range shows only the part in which the two names differ.
    shared = 0
    while shared < min(len(first), len(part.last)) and first[shared] == part.last[shared]:
        shared += 1
    name = first if first == part.last else f"{first}–{part.last[shared:]}"
    return f"{part.times} × {name}"


def shown(shape: Shape) -> str:
    """The sides of a tensor without the batch, as 64 × 32 × 32."""
    return " × ".join(f"{side:,}" for side in shape)


def write(axes: Axes, x: float, y: float, text: str, layout: Layout, colour: str, ha: str = "left") -> None:
    """Writes a text; a soft one on a ground of its own, because a line may pass below it. x and y are in
    units of the drawing, from its upper left corner."""
    ground: Any = {"facecolor": COLOURS["paper"], "linewidth": 0, "pad": 1} if colour == "soft" else None
    axes.text(
        x,
        y,
        text,
        color=COLOURS[colour],
        ha=ha,
        va="center_baseline",
        fontsize=layout.font,
        bbox=ground,
        zorder=3,
    )
