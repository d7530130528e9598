"""Names that a reader would take for one another, by Unicode Technical Standard #39.

The standard's table of confusable characters comes from the library `confusable_homoglyphs`. Unlike a
skeleton of the standard, a view of a name leaves out case, accents, spaces and punctuation, because a list
shows names of organisations, and takes 0 and 1 for o, i and l.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import cache
from types import ModuleType

from aiperf.errors import MissingExtra
from aiperf.hardware.device_names import ALIKE

INVISIBLE = "\u115f\u1160"
"""Letters that are not shown: fillers of Hangul, the only ones that are left of the standard's
Default_Ignorable_Code_Point by the form NFKC and by `isalnum`."""
TOGETHER = frozenset({"LATIN", "HAN", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO"})
"""Scripts that are mixed in ordinary words of Chinese, Japanese and Korean."""
OF_ALL = frozenset({"COMMON"})
"""The name of the script of letters that several scripts use, such as the sign for a micro."""


def look_alike(one: str, other: str) -> bool:
    """Whether a reader could take one name for the other. Raises MissingExtra without the library."""
    return not views(one).isdisjoint(views(other))


def views(name: str) -> frozenset[str]:
    """What the name looks like as it is written, in small letters and in capitals: the Greek \u0392 looks
    like B, but its small letter \u03b2 not like b. Empty texts are left out."""
    plain = unicodedata.normalize("NFKC", name)
    return frozenset(filter(None, map(_view, (plain, plain.casefold(), plain.upper()))))


def mixed_scripts(name: str) -> str:
    """The first word of a name whose letters are of several scripts; empty if there is none."""
    categories = _library("categories")
    words = re.split(r"[\W\d_]+", unicodedata.normalize("NFC", name))
    for word in words:
        scripts = categories.unique_aliases(word) - OF_ALL
        if len(scripts) > 1 and not scripts <= TOGETHER:
            return word
    return ""


def _view(text: str) -> str:
    for _ in range(2):  # a confusable of a capital letter may be one that has another in small letters
        text = "".join(_prototypes().get(letter, letter) for letter in _letters(text)).casefold()
    return "".join(_letters(text)).translate(ALIKE)


def _letters(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(letter for letter in decomposed if letter.isalnum() and letter not in INVISIBLE)


@cache
def _prototypes() -> Mapping[str, str]:
    """The standard's prototype by confusable character. The library lists for a prototype all characters that
    look like it, and for each of these the prototype."""
    data = _library("confusables").confusables_data
    found = {}
    for letter, others in data.items():
        other = others[0]["c"]
        if len(others) == 1 and (len(data.get(other, ())) != 1 or other < letter):
            found[letter] = other
    return found


def _library(module: str) -> ModuleType:
    try:
        import confusable_homoglyphs.categories
        import confusable_homoglyphs.confusables
    except ImportError:
        raise MissingExtra("confusable_homoglyphs", "sign") from None
    found: ModuleType = getattr(confusable_homoglyphs, module)
    return found
