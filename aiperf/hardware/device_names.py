"""Names of devices as drivers report them, in one form, without letters that look like others."""

from __future__ import annotations

import unicodedata

EAST_ASIAN = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL")
"""Scripts that vendors use in addition to Latin, and whose letters cannot be confused with Latin ones."""
SIGNS = "®©"
"""Signs that vendors write into names."""
ALIKE = str.maketrans("oli", "011")
"""Lower-case ASCII letters that can be mistaken for a digit, with that digit."""


def plain_name(name: str) -> str:
    """The name in Unicode's form NFKC, with single spaces."""
    return " ".join(unicodedata.normalize("NFKC", name).split())


def folded_name(name: str) -> str:
    """Only the letters and digits of the name, in lower case, because one device's name is written in many
    ways."""
    return "".join(letter for letter in plain_name(name).casefold() if letter.isalnum())


def visible_name(name: str) -> str:
    """The plain name with a question mark for each letter that is refused, for names from a driver, which
    cannot be corrected."""
    return "".join("?" if _is_refused(letter) else letter for letter in plain_name(name))


def refused_letters(name: str) -> list[str]:
    """Letters of the plain name that are invisible, or belong to a script whose letters look like Latin
    ones."""
    found = dict.fromkeys(letter for letter in plain_name(name) if _is_refused(letter))
    return [f"U+{ord(letter):04X} {unicodedata.name(letter, '').strip()}".strip() for letter in found]


def reads_like(name: str, other: str) -> bool:
    """Whether two names of different devices differ only in letters that look the same."""
    one, two = (folded_name(each.replace("|", "1")) for each in (name, other))
    return one != two and one.translate(ALIKE) == two.translate(ALIKE)


def _is_refused(letter: str) -> bool:
    if letter.isascii():
        return not letter.isprintable()
    is_letter = unicodedata.category(letter) in ("Lo", "Lm")
    return not (letter in SIGNS or (is_letter and unicodedata.name(letter, "").startswith(EAST_ASIAN)))
