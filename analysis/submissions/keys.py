"""The register of a list: which site has which key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from aiperf.errors import AiperfError
from aiperf.os_error import unreadable
from aiperf.wording import plain
from analysis.submissions.look_alikes import look_alike, mixed_scripts, views
from analysis.submissions.weak_keys import is_weak
from nas.bounded import read_text

KEY = re.compile(r"[0-9a-f]{64}")
LONGEST_NAME = 300

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
