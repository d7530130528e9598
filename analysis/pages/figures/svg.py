"""Figures as SVG inside a page, and as files. Both are drawn by matplotlib; a figure in a page is then made
smaller, and follows the page's colours and font."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.pages.figures.picture import (
    COLOURS,
    NARROW,
    POINTS_PER_INCH,
    WIDE,
    Frame,
    Key,
    Marks,
    Picture,
    styled,
)
from nas.frozen import frozen

TITLE_HEIGHT = 24
"""Room above a figure in a file for its title, in points; a page writes the title itself."""
_LINES: Mapping[str, tuple[Literal["-", "--"], str]] = {
    "line": ("-", ""),
    "dashed": ("--", ""),
    "points": ("-", "o"),
}
"""matplotlib's style of line and of dot for shapes of a legend that are lines."""
_MARKERS = {"dot": "o", "ring": "o", "diamond": "D", "cross": "x"}
"""matplotlib's markers for shapes of a legend that are dots."""
_VARIABLES = {colour: f"var(--{name})" for name, colour in COLOURS.items()}
"""Variables of the style sheet by colour, which change by day and by night."""
_ALIKE = re.compile(r'(<g[^>]*)>\s*((?:<use [^>]*style="([^"]*)"/>\s*)(?:<use [^>]*style="\3"/>\s*)+)</g>')
"""Dots of one group that all have the same style."""
_TAG = re.compile(r"<[^>]*>")
_DIGITS = re.compile(r"(\d\.\d{2})\d+")
"""Digits of coordinates beyond the second decimal. They are cut inside tags only, so that texts keep
theirs."""
_COLOUR = re.compile("|".join(_VARIABLES))
"""Any colour that has a variable."""


@frozen
class Inline:
    """A picture drawn for a page at two widths; the style sheet shows the one that fits."""

    wide: str
    narrow: str
    wide_marks: Marks | None
    narrow_marks: Marks | None


def inline(picture: Picture) -> Inline:
    """The picture at both widths, each with the marks of that width; empty if there is nothing to draw."""
    if picture.empty:
        return Inline("", "", None, None)
    wide, wide_marks = _drawn(picture, picture.wide)
    narrow, narrow_marks = _drawn(picture, NARROW)
    return Inline(wide, narrow, wide_marks, narrow_marks)


def write_files(picture: Picture, folder: Path) -> list[Path]:
    """Writes NAME.svg and NAME.png, for a slide or a paper: on white, the PNG at twice the size on the
    screen, with the legend and with the text alternative in their metadata. No file if there is nothing to
    draw. Raises OSError. The files have no date, so that equal figures are equal files."""
    if picture.empty:
        return []
    paths = [folder / f"{picture.name}.svg", folder / f"{picture.name}.png"]
    with styled(picture.name):
        figure = picture.draw(WIDE).figure
        figure.set_facecolor("white")
        figure.suptitle(picture.title, fontsize=14, x=0.01, ha="left")
        room = TITLE_HEIGHT + _legend(figure, picture)
        figure.set_figheight(figure.get_figheight() + room / POINTS_PER_INCH)
        told = {"Title": picture.title, "Description": picture.says}
        figure.savefig(paths[0], metadata={"Date": None, **told})
        figure.savefig(paths[1], dpi=2 * POINTS_PER_INCH, metadata=told)
    return paths


def _legend(figure: Figure, picture: Picture) -> float:
    """Draws the legend below, in as few rows as are not wider than the figure; returns its height."""
    for num_columns in range(len(picture.legend), 0, -1):
        legend = figure.legend(
            handles=[_handle(key) for key in picture.legend],
            loc="outside lower left",
            ncols=num_columns,
            frameon=False,
            labelcolor=COLOURS["soft"],
            fontsize=11,
            columnspacing=1.6,
            handlelength=1.3,
        )
        box = legend.get_window_extent()
        if box.width <= figure.bbox.width or num_columns == 1:
            return float(box.height)
        legend.remove()
    return 0.0


def _handle(key: Key) -> Artist:
    """matplotlib's artist for an entry of the legend."""
    colour = COLOURS[key.colour]
    if key.shape in _LINES:
        style, marker = _LINES[key.shape]
        return Line2D([], [], color=colour, lw=2, ls=style, marker=marker, label=key.text)
    if key.shape in _MARKERS:
        inside = "none" if key.shape == "ring" else colour
        return Line2D([], [], color=colour, marker=_MARKERS[key.shape], mfc=inside, ls="none", label=key.text)
    if key.shape == "hatch":
        return Patch(facecolor="none", edgecolor=colour, hatch="////", lw=0, label=key.text)
    return Patch(facecolor=colour, lw=0, label=key.text)


def _drawn(picture: Picture, frame: Frame) -> tuple[str, Marks | None]:
    """The picture at one width as an SVG element, and its marks, which are known once it was written."""
    name = f"{picture.name}-{frame.name}"
    with styled(name):
        drawing = picture.draw(frame)
        text = _fragment(drawing.figure, name, frame, f"{picture.name}-says")
        return text, drawing.marks() if drawing.marks else None


def _fragment(figure: Figure, name: str, frame: Frame, says: str) -> str:
    """The `svg` element alone: colours by variable, names that occur once in the page, short numbers.

    `says`: the id of the element that describes it."""
    buffer = io.StringIO()
    figure.savefig(
        buffer, format="svg", metadata={"Date": None, "Creator": None, "Type": None, "Format": None}
    )
    text = buffer.getvalue()
    text = text[text.index("<svg") :]  # without the XML declaration, which cannot be inside a page
    # A page has words and a style sheet of its own, and a style element would hold for all of it.
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->|<style[^>]*>.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(
        r'<svg [^>]*viewBox="([^"]*)"[^>]*>',
        rf'<svg class="{frame.name}" viewBox="\1" role="img" aria-labelledby="{says}">',
        text,
        count=1,
    )
    # Colours that change by day and by night, and the font of the page.
    text = _COLOUR.sub(lambda found: _VARIABLES[found.group()], text)
    text = re.sub(r"font: (?:[\w-]+ )*?([\d.]+)px [^;\"]*", r"font-size: \1px", text)
    text = re.sub(r"; -inkscape-font-specification:[^;\"]*", "", text)
    # Ids are unique in a page; those that nothing refers to only make it larger.
    referred = set(re.findall(r'(?:url\(#|xlink:href="#)([^")]+)', text))
    text = re.sub(r' id="([^"]+)"', lambda found: _renamed(found.group(1), referred, name), text)
    text = re.sub(r'(url\(#|xlink:href="#)', rf"\1{name}-", text)
    text = text.replace("xlink:href", "href")
    text = _ALIKE.sub(_hoisted, text)
    text = _TAG.sub(lambda found: _DIGITS.sub(r"\1", found.group()), text)
    return re.sub(r"\n\s*", "\n", text)


def _hoisted(found: re.Match[str]) -> str:
    """Dots that look alike share one description."""
    group, dots, style = found.groups()
    return f'{group} style="{style}">\n' + dots.replace(f' style="{style}"', "") + "</g>"


def _renamed(own: str, referred: set[str], name: str) -> str:
    """The id of an element, made unique in the page; nothing if no other element refers to it."""
    return f' id="{name}-{own}"' if own in referred else ""
