"""A figure before it is drawn, and the result of drawing it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from aiperf.journal.mark import Mark, marked
from analysis.pages.figures.style import WIDE, Frame, stamp
from analysis.table import Table


@dataclass(frozen=True)
class Key:
    """An entry of a figure's legend; the page writes it, so that it wraps and can be read aloud."""

    colour: str
    """A name of style.COLOURS."""
    text: str
    shape: str = "square"
    """square, line, dashed, points (a line with dots), dot, ring, diamond, cross or hatch."""


@dataclass(frozen=True)
class Marks:
    """Where a pointer finds something, in the units of the drawing, from its upper left corner."""

    place: NDArray[np.float64]
    """Rows of left, right, height: a point has left = right."""
    names: Sequence[int]
    """What each is: the number of a trial, or the place of a text in `Picture.labels`."""


@dataclass(frozen=True)
class Drawing:
    figure: Figure
    marks: Callable[[], Marks] | None = None
    """Called after the figure was written, because only then its layout is known."""


@dataclass(frozen=True)
class Picture:
    """A figure with its drawing, its text and its table."""

    name: str
    """Name of its file and of its anchor."""
    title: str
    says: str
    """The text alternative: what a reader would see, in a sentence or two with the figures that matter."""
    draw: Callable[[Frame], Drawing]
    table: Table | None = None
    legend: Sequence[Key] = ()
    labels: Sequence[str] | None = None
    """Texts of the marks; None where the marks are trials."""
    near_in_both: bool = True
    """Whether a pointer must be near in height too; in a line over time it need not."""
    empty: bool = False
    """Whether there is nothing to draw, so that only its words are shown."""
    wide: Frame = WIDE
    """The width that a page of a screen has for it."""
    lineage: bool = False
    """Whether the ancestors of the trial that is pointed at are to be joined by a line."""


def stamped(picture: Picture, mark: Mark | None, behind: bool = False) -> Picture:
    """The picture with the mark in its title, in its words and all over its drawing: what is cut out of a
    page, or saved alone, says what it is. `behind`: as `stamp` takes it."""
    if mark is None:
        return picture

    def draw(frame: Frame) -> Drawing:
        drawing = picture.draw(frame)
        stamp(drawing.figure, mark.word.upper(), frame, behind)
        return drawing

    says = f"{mark.word.capitalize()}. {picture.says}"
    return replace(picture, title=marked(picture.title, mark), says=says, draw=draw)


def marks_of(
    axes: Axes, left: NDArray[np.float64], right: NDArray[np.float64], height: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The places of marks, from the data's coordinates to the drawing's."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    top = figure.get_figheight() * figure.dpi
    if not len(left):
        return np.zeros((0, 3))
    first = axes.transData.transform(np.column_stack([left, height]))
    second = axes.transData.transform(np.column_stack([right, height]))
    return np.column_stack([first[:, 0], second[:, 0], top - first[:, 1]])
