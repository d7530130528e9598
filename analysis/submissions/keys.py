"""The register of a list: which site has which key, and no two sites with names that look alike.

Which names a reader would take for one another is decided by Unicode Technical Standard #39. The standard's
table of confusable characters comes from the library `confusable_homoglyphs`. Unlike a skeleton of the
standard, a view of a name leaves out case, accents, spaces and punctuation, because a list shows names of
organisations, and takes 0 and 1 for o, i and l.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType

from aiperf.errors import AiperfError, MissingExtra
from aiperf.hardware.device_names import ALIKE
from aiperf.os_error import unreadable
from aiperf.wording import plain
from analysis.submissions.signature import is_weak
from nas.bounded import read_text

KEY = re.compile(r"[0-9a-f]{64}")
"""A public key of Ed25519 as text."""
LONGEST_NAME = 300
"""Most characters of a site's name, which a list shows whole."""
INVISIBLE = "\u115f\u1160"
"""Letters that are not shown: fillers of Hangul, the only ones that are left of the standard's
Default_Ignorable_Code_Point by the form NFKC and by `isalnum`."""
TOGETHER = frozenset({"LATIN", "HAN", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO"})
"""Scripts that are mixed in ordinary words of Chinese, Japanese and Korean."""
OF_ALL = frozenset({"COMMON"})
"""The name of the script of letters that several scripts use, such as the sign for a micro."""

Register = Mapping[str, str]
"""Name of the site by its public key."""


def read_keys(path: Path) -> Register:
    """Lines of a public key and the name of its site; empty ones and those that begin with # are skipped.

    A site may have several keys. Raises AiperfError, which names the line, for a file of anything else.
    """
    try:
        lines = read_text(path).removeprefix("\ufeff").split("\n")  # as some editors begin a file
    except OSError as error:
        otherwise = "give a file with one public key and site name per line"
        raise AiperfError(unreadable(error, path, otherwise)) from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        where = f"{path}, line {number}"
        key, name = _entry(line, where)
        if key in found:
            raise AiperfError(f"{where}: the key of {found[key]} appears twice; a key belongs to one site")
        found[key] = name
    _refuse_alike(found, path)
    return found


def line_of(public: str, site: str) -> str:
    """The line of a register for a key. Raises AiperfError for a name that a line cannot hold."""
    return " ".join(_entry(f"{public} {site}", "--site"))


def claimed_site(register: Register, name: str) -> str | None:
    """The registered site whose name this looks like."""
    return next((site for site in register.values() if look_alike(site, name)), None)


def _entry(line: str, where: str) -> tuple[str, str]:
    """The key and the name in one line of a register. Raises AiperfError, which begins with `where`."""
    key, *names = line.split(maxsplit=1)
    key, name = key.lower(), "".join(names).strip()
    if KEY.fullmatch(key) is None:
        raise AiperfError(f"{where}: {plain(key):.70} is not a public key of 64 hexadecimal digits")
    if is_weak(bytes.fromhex(key)):
        raise AiperfError(
            f"{where}: with the public key {key:.16}… anybody can sign; ask {plain(name):.100} for another"
        )
    if not name or len(name) > LONGEST_NAME or plain(name) != name or not views(name):
        raise AiperfError(f"{where}: the site name after the key is missing or not plain text")
    if word := mixed_scripts(name):
        raise AiperfError(f"{where}: the word {word} has letters of several scripts; write it in one")
    return key, name


def _refuse_alike(register: Register, path: Path) -> None:
    """Refuses a register in which two sites look alike: one could be taken for the other."""
    spelt: dict[str, str] = {}
    for site in register.values():
        for view in views(site):
            if (other := spelt.setdefault(view, site)) != site:
                raise AiperfError(
                    f"{path}: {other} and {site} look alike; spell the name of a site in one way"
                )


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
    """The letters of a text with each replaced by its prototype; texts that look alike have one view."""
    for _ in range(2):  # a confusable of a capital letter may be one that has another in small letters
        text = "".join(_prototypes().get(letter, letter) for letter in _letters(text)).casefold()
    return "".join(_letters(text)).translate(ALIKE)


def _letters(text: str) -> str:
    """Letters and digits alone, without accents and what is not shown."""
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
    """A module of the library, which is imported only here because it is an extra."""
    try:
        import confusable_homoglyphs.categories
        import confusable_homoglyphs.confusables
    except ImportError:
        raise MissingExtra("confusable_homoglyphs", "sign") from None
    found: ModuleType = getattr(confusable_homoglyphs, module)
    return found
