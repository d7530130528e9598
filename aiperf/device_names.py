"""Names of devices as a driver gives them: one form, and no letters that pass for others."""

from __future__ import annotations

import unicodedata

EAST_ASIAN = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL")
"""Scripts in which vendors write beside Latin letters, and whose letters look like none of those."""
SIGNS = "®©"
ALIKE = str.maketrans("oli", "011")
"""Of ASCII in lower case, what is read for a digit."""


def plain_name(name: str) -> str:
    """In the compatible composed form of Unicode (NFKC), with single spaces."""
    return " ".join(unicodedata.normalize("NFKC", name).split())


def folded_name(name: str) -> str:
    """The letters and digits alone, in lower case: one device's name is written in many ways."""
    return "".join(letter for letter in plain_name(name).casefold() if letter.isalnum())


def visible_name(name: str) -> str:
    """The plain name with a question mark for each letter that is refused: for what a driver says."""
    return "".join("?" if _is_refused(letter) else letter for letter in plain_name(name))


def refused_letters(name: str) -> list[str]:
    """Letters of the plain name that are invisible, or of a script whose letters pass for Latin ones."""
    found = dict.fromkeys(letter for letter in plain_name(name) if _is_refused(letter))
    return [f"U+{ord(letter):04X} {unicodedata.name(letter, '').strip()}".strip() for letter in found]


def reads_like(name: str, other: str) -> bool:
    """Whether two names of different devices differ in letters only that look the same."""
    one, two = (folded_name(each.replace("|", "1")) for each in (name, other))
    return one != two and one.translate(ALIKE) == two.translate(ALIKE)


def _is_refused(letter: str) -> bool:
    if letter.isascii():
        return not letter.isprintable()
    is_letter = unicodedata.category(letter) in ("Lo", "Lm")
    return not (letter in SIGNS or (is_letter and unicodedata.name(letter, "").startswith(EAST_ASIAN)))
