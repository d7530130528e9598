"""Pages that stand alone: one file, nothing fetched, nothing in it that can run but its own script. Texts
come from journals and site files, which anybody may have written: a template escapes them all, and the policy
of the page lets nothing run but its script, which it names by its hash."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from aiperf import __version__
from aiperf.journal.mark import Mark
from aiperf.wording import plain
from analysis.pages.figures.picture import Key, Marks, Picture
from analysis.pages.figures.svg import inline
from analysis.table import Table
from nas.frozen import frozen


@frozen
class Drawn:
    """A picture as a template takes it, without what it was drawn from."""

    name: str
    title: str
    says: str
    legend: Sequence[Key]
    table: Table | None
    empty: bool
    """As of the picture."""
    wide: Markup
    narrow: Markup
    marks: Mapping[str, Any] | None
    """Places and names that the script needs to react to a pointer."""


def drawn(picture: Picture, parents: Mapping[int, int | None] | None = None) -> Drawn:
    """`parents`: by trial, for a picture whose ancestors are to be joined. Its marks are None if there is
    nothing to point at, or nothing drawn."""
    found = inline(picture)
    marks = None
    if found.wide_marks is not None and found.narrow_marks is not None and len(found.wide_marks.names):
        names = list(found.wide_marks.names)
        marks = {
            "wide": _columns(found.wide_marks),
            "narrow": _columns(found.narrow_marks),
            "names": names,
            "labels": picture.labels,
            "vertical": picture.near_in_both,
            "parents": _places(names, parents or {}) if picture.lineage else None,
        }
    # matplotlib escapes what it writes; nothing else of a figure is markup.
    words = picture.name, picture.title, picture.says, picture.legend, picture.table, picture.empty
    return Drawn(*words, Markup(found.wide), Markup(found.narrow), marks)


def page(template: str, mark: Mark | None, live: bool = False, **content: Any) -> str:
    """The whole text of a page. `mark`: of runs that were not measured. Only a live page may ask its own
    server for more. Raises jinja2's UndefinedError if the template uses a name that is not in `content`."""
    script, css = _text("page.js"), _text("page.css")
    hash_ = b64encode(sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{hash_}'"
    policy += "; connect-src 'self'" if live else ""
    return (
        _environment()
        .get_template(template)
        .render(
            css=Markup(css), script=Markup(script), policy=policy, program=__version__, mark=mark, **content
        )
    )


def _environment() -> Environment:
    """The templates with everything escaped. A name that a template misspells raises."""
    environment = Environment(
        loader=PackageLoader("analysis.pages", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["prose"] = _prose
    return environment


def _shown(value: Any) -> Any:
    """What a template writes for a value: text without characters that turn or hide other text, because names
    come from journals."""
    return plain(value) if type(value) is str else value


def _prose(text: str) -> Markup:
    """A figure stays on the line of its unit, and an option of a command is not broken after its dashes; what
    is to be typed, `so`, looks so. Nothing else is markup."""
    tied = re.sub(r"(?<=\d) (?=%|[kMGTPE]?OPS?\b|(?:images|bytes)/s|s\b)", "\u00a0", plain(text))
    whole = re.sub(r"(?<![\w-])--\w[\w-]*", r'<span class="whole">\g<0></span>', str(escape(tied)))
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", whole))


def _text(name: str) -> str:
    """A file next to the templates that goes into every page."""
    return (resources.files("analysis.pages") / "templates" / name).read_text(encoding="utf-8")


def _columns(marks: Marks) -> dict[str, list[float]]:
    """Places of marks as columns of numbers, to a tenth of a pixel, for the script of the page."""
    rounded = marks.place.round(1)
    return {name: rounded[:, place].tolist() for place, name in enumerate(("left", "right", "height"))}


def _places(names: list[int], parents: Mapping[int, int | None]) -> list[int]:
    """For each mark the place of its parent's mark; -1 if it has none."""
    place = {name: index for index, name in enumerate(names)}
    found = []
    for name in names:
        parent = parents.get(name)
        found.append(-1 if parent is None else place.get(parent, -1))
    return found
