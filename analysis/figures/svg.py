"""Figures as SVG inside a page, and as files."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from analysis.figures.picture import Marks, Picture
from analysis.figures.style import COLOURS, NARROW, POINTS_PER_INCH, WIDE, Frame, styled

__all__ = ["Inline", "inline", "write_files"]

_VARIABLES = {colour: f"var(--{name})" for name, colour in COLOURS.items()}
_ALIKE = re.compile(r'(<g[^>]*)>\s*((?:<use [^>]*style="([^"]*)"/>\s*)(?:<use [^>]*style="\3"/>\s*)+)</g>')
_COLOUR = re.compile("|".join(_VARIABLES))


@dataclass(frozen=True)
class Inline:
    """A picture drawn for a page at two widths; the style sheet shows the one that fits."""

    wide: str
    narrow: str
    wide_marks: Marks | None
    narrow_marks: Marks | None


def inline(picture: Picture) -> Inline:
    wide, wide_marks = _drawn(picture, WIDE)
    narrow, narrow_marks = _drawn(picture, NARROW)
    return Inline(wide, narrow, wide_marks, narrow_marks)


def write_files(picture: Picture, folder: Path) -> list[Path]:
    """NAME.svg and NAME.png, for a slide or a paper: on white, at twice the size on the screen."""
    paths = [folder / f"{picture.name}.svg", folder / f"{picture.name}.png"]
    with styled(picture.name):
        figure = picture.draw(WIDE).figure
        figure.set_facecolor("white")
        figure.suptitle(picture.title, fontsize=14, x=0.01, ha="left")
        figure.savefig(paths[0], metadata={"Date": None})
        figure.savefig(paths[1], dpi=2 * POINTS_PER_INCH)
    return paths


def _drawn(picture: Picture, frame: Frame) -> tuple[str, Marks | None]:
    name = f"{picture.name}-{frame.name}"
    with styled(name):
        drawing = picture.draw(frame)
        text = _fragment(drawing.figure, name, frame)
        return text, drawing.marks() if drawing.marks else None


def _fragment(figure: Figure, name: str, frame: Frame) -> str:
    """The `svg` element alone: colours by variable, names that occur once in the page, short numbers."""
    buffer = io.StringIO()
    figure.savefig(
        buffer, format="svg", metadata={"Date": None, "Creator": None, "Type": None, "Format": None}
    )
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->|<style[^>]*>.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(
        r'<svg [^>]*viewBox="([^"]*)"[^>]*>', rf'<svg class="{frame.name}" viewBox="\1">', text, count=1
    )
    text = _COLOUR.sub(lambda found: _VARIABLES[found.group()], text)
    text = re.sub(r"font: (?:[\w-]+ )*?([\d.]+)px [^;\"]*", r"font-size: \1px", text)
    text = re.sub(r"; -inkscape-font-specification:[^;\"]*", "", text)
    referred = set(re.findall(r'(?:url\(#|xlink:href="#)([^")]+)', text))
    text = re.sub(r' id="([^"]+)"', lambda found: _renamed(found.group(1), referred, name), text)
    text = re.sub(r'(url\(#|xlink:href="#)', rf"\1{name}-", text)
    text = text.replace("xlink:href", "href")
    text = _ALIKE.sub(_hoisted, text)
    text = re.sub(r"(\d\.\d{2})\d+", r"\1", text)
    return re.sub(r"\n\s*", "\n", text)


def _hoisted(found: re.Match[str]) -> str:
    """Of dots that look alike, the look is told once."""
    group, dots, style = found.groups()
    return f'{group} style="{style}">\n' + dots.replace(f' style="{style}"', "") + "</g>"


def _renamed(own: str, referred: set[str], name: str) -> str:
    return f' id="{name}-{own}"' if own in referred else ""
