"""An architecture from top to bottom: its units as boxes, what its line of morphisms changed in colour."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analysis.pages.figures.architecture_boxes import (
    GAP,
    Box,
    Layout,
    centre,
    draw_part,
    height_of,
    places_of,
    shown,
    write,
)
from analysis.pages.figures.picture import Drawing, Key, Marks, Picture
from analysis.pages.figures.style import COLOURS, Frame, canvas
from analysis.readings.architecture.architecture import SEED, Architecture, LayerUnit
from analysis.table import Table


def architecture_picture(found: Architecture, best: int) -> Picture:
    """The picture of the network of trial `best`."""
    lanes = max(
        max(lane for _, lane in places_of(block)) + 1 for part in found.parts for block in part.blocks
    )

    def draw(frame: Frame) -> Drawing:
        narrow = frame.narrow
        layout = Layout(frame, 8 if narrow else 150, frame.width - (8 if narrow else 130), lanes)
        height = 34 + sum(height_of(part, layout) + GAP for part in found.parts)
        figure, (axes,) = canvas(frame, height)
        figure.set_layout_engine("none")
        axes.set_position((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set_xlim(0, frame.width)
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
        legend.append(Key("sky", "changed earlier in its line, by the trial of that number"))
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
    num = sum(part.times * sum(len(block.units) for block in part.blocks) for part in found.parts)
    text = f"The network of trial {best}: {num} boxes, each a layer with the norm and activation after it"
    if any(part.times > 1 for part in found.parts):
        text += "; equal blocks in a row are drawn once"
    if not found.steps or all(not step.morphisms for step in found.steps):
        return f"{text}. It is the seed itself."
    last = found.steps[-1]
    parts = [(len(last.new), "new layer"), (len(last.changed), "changed layer")]
    seen = " and ".join(f"{num} {what}{'' if num == 1 else 's'}" for num, what in parts if num)
    changed = f"has {seen}" if seen else "has the same architecture"
    kinds = ", ".join(last.morphisms) or "trained on"
    return f"{text}. Compared with its parent ({kinds}) it {changed}."


def _steps(found: Architecture) -> Table:
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
