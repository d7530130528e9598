"""The names that a journal hides: what identifies a person or a site is written as a commitment, and its
value in a private file next to the journal.

A commitment is `kind-` and 12 hexadecimal digits of HMAC-SHA256 (RFC 2104) over kind and value, with one
random salt of 256 bits per run as the key. Equal values of a run are alike, so that hosts can be counted and
a device be known again; those of two runs are not. The salt is private too: host names are so few that
whoever knew it would try them all. The journal has the salt's SHA-256, so that nobody can open it with
another one later.
"""

from __future__ import annotations

import errno
import hmac
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from aiperf.errors import JournalError
from nas.bounded import lines, opened

SALT_BYTES = 32
DIGITS = 12
"""Digits of a commitment: with 32,768 hosts, two are alike by chance in one run of 500,000. The salt's hash
has all digits, so the values cannot be chosen afterwards."""
KINDS = ("host", "user", "path", "device", "process", "job", "image", "address")
TOKEN = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(KINDS)})-[0-9a-f]{{{DIGITS}}}(?![A-Za-z0-9])")
LONGEST_LINE = 1 << 20
"""Bytes of a line of the private file; a path has 4 KiB at most."""

Value = str | int


def new_salt() -> str:
    """The salt of a new run, as hexadecimal digits."""
    return os.urandom(SALT_BYTES).hex()


def fingerprint(salt: str) -> str:
    """SHA-256 of a salt, which is published."""
    return sha256(salt.encode()).hexdigest()


def commitment(salt: str, kind: str, value: Value) -> Value:
    """What stands in the journal for a value: a number for a number, so that the field keeps its type."""
    digest = hmac.new(salt.encode(), f"{kind}\0{value}".encode("utf-8", "surrogatepass"), sha256).hexdigest()
    return int(digest[:DIGITS], 16) if isinstance(value, int) else f"{kind}-{digest[:DIGITS]}"


def is_hidden(text: str) -> bool:
    """Whether a text is a commitment, and nothing else."""
    return TOKEN.fullmatch(text) is not None


def hidden(salt: str, kind: str, name: str) -> str:
    """A name as the journal has it: the same without a salt, and of one that is hidden already."""
    return name if not salt or not name or is_hidden(name) else str(commitment(salt, kind, name))


def differ(first: object, second: object) -> bool:
    """Whether two values of two runs are known to differ: a name that one of them hides may be the
    other's."""
    if not (isinstance(first, str) and isinstance(second, str)):
        return first != second
    return not (_fits(first, second) or _fits(second, first))


def _fits(hiding: str, text: str) -> bool:
    """Whether the text has all parts that are shown, in their order, with something in the place of each
    commitment. On a hostile journal a regular expression would never end."""
    first, *rest = TOKEN.split(hiding)
    if not rest or not text.startswith(first):
        return hiding == text
    place = len(first)
    for part in rest[:-1]:
        found = text.find(part, place + 1)
        if found < 0:
            return False
        place = found + len(part)
    return text.endswith(rest[-1]) and len(text) - len(rest[-1]) > place


def without_names(value: object) -> object:
    """A value with one word for all commitments, to be compared with that of another run by a hash."""
    return TOKEN.sub("hidden", value) if isinstance(value, str) else value


def salt_of(private: Path, journal: Path) -> str:
    """The salt in a private file that belongs to this journal; empty if there is none."""
    try:
        status = private.stat()
    except OSError:
        return ""
    return _salt_of(private, journal, status.st_ino, status.st_mtime_ns)


@lru_cache(maxsize=8)
def _salt_of(private: Path, journal: Path, *version: int) -> str:
    try:
        with opened(journal) as file, opened(private) as own:
            first, record = file.readline(LONGEST_LINE), _record(own.readline(LONGEST_LINE))
    except OSError:
        return ""
    published = re.search(rb'"salt_sha256":"([0-9a-f]{64})"', first)
    return _salt(record, published[1].decode()) if published else ""


class PrivateFile:
    """The private file of a run that is being written: the salt, then a line for each new value. A value is
    written before the first line of the journal that needs it."""

    def __init__(self, path: Path, file: int, names: Names) -> None:
        self._path, self._file, self._names = path, file, names

    @classmethod
    def begin(cls, path: Path, salt: str) -> PrivateFile:
        """A new file that only its owner can read. Raises OSError."""
        path.unlink(missing_ok=True)  # of a run that was killed before the first line of its journal
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o600)
        begun = cls(path, file, Names(path, salt))
        begun._append({"salt": salt})
        return begun

    @classmethod
    def resume(cls, path: Path, published: str) -> PrivateFile:
        """The file of a run that goes on. Raises JournalError if it is not there or does not fit, because the
        run cannot be continued without the paths in it; OSError if it cannot be written."""
        names = Names.at(path, published)
        if not names.salt:
            raise JournalError(
                f"{path} is missing, cannot be read or belongs to another run: it has the names and paths "
                "that the journal hides; put it back to continue the run, or start a new run"
            )
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.ftruncate(file, names.offset)  # a torn last line
        return cls(path, file, names)

    def known(self) -> Iterator[tuple[str, str]]:
        """Kinds and values so far, numbers left out."""
        for token, value in self._names.values.items():
            if isinstance(token, str):
                yield token.partition("-")[0], str(value)

    def commit(self, kind: str, value: Value) -> Value:
        """The commitment for a value, which is written if it is new. Raises OSError."""
        token = commitment(self._names.salt, kind, value)
        if token not in self._names.values:
            self._append({"kind": kind, "value": value})
            self._names.values[token] = value
        return token

    def _append(self, record: Mapping[str, Value]) -> None:
        raw, size = json.dumps(record).encode() + b"\n", os.fstat(self._file).st_size
        if os.write(self._file, raw) < len(raw):  # the disk is full
            os.ftruncate(self._file, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))

    def close(self) -> None:
        os.close(self._file)


@dataclass
class Names:
    """The values that a private file gives for the commitments of a journal; empty without the file, and if
    it does not fit."""

    path: Path
    salt: str = ""
    values: dict[Value, Value] = field(default_factory=dict)
    """The hidden values by their commitments. Each was checked when it was read, so no two commitments stand
    for one value."""
    offset: int = 0
    """Bytes of the file that were read."""

    @classmethod
    def at(cls, path: Path, published: str) -> Names:
        """The names in a private file. `published`: the salt's hash in the journal. A file that does not fit
        is reported in one line and changes nothing."""
        names = cls(path)
        names._read(published)
        return names

    def text(self, text: str) -> str:
        """A text with the values for the commitments in it that are known."""
        return TOKEN.sub(lambda found: str(self._value(found[0])), text)

    def number(self, number: int) -> int:
        value = self._value(number)
        return value if isinstance(value, int) else number

    def _value(self, token: Value) -> Value:
        if token not in self.values and self.salt:  # the run may have gone on
            self._read(fingerprint(self.salt))
        return self.values.get(token, token)

    def _read(self, published: str) -> None:
        wrong = 0
        for record in self._new_records():
            if not self.salt:
                self.salt = _salt(record, published)
                if not self.salt:
                    wrong = 1
                    break
            elif entry := _entry(record):
                self.values[commitment(self.salt, *entry)] = entry[1]
            else:
                wrong += 1
        if wrong:
            _report(f"{self.path.parent.name}/{self.path.name}", "all" if not self.salt else str(wrong))

    def _new_records(self) -> Iterator[Mapping[str, Any]]:
        """The whole lines since the last time; of a line that is not an object nothing is known."""
        try:
            with opened(self.path) as file:
                file.seek(self.offset)
                for raw in lines(file, LONGEST_LINE):
                    if not raw.endswith(b"\n"):
                        return
                    self.offset += len(raw)
                    yield _record(raw)
        except OSError:  # absent, or somebody else's: the commitments are shown
            return


def _salt(record: Mapping[str, Any], published: str) -> str:
    """The salt in the first line, if it has this hash; else empty."""
    salt = record.get("salt")
    is_salt = isinstance(salt, str) and re.fullmatch(r"[0-9a-f]{64}", salt) is not None
    return str(salt) if is_salt and fingerprint(str(salt)) == published else ""


def _entry(record: Mapping[str, Any]) -> tuple[str, Value] | None:
    """Kind and value of a further line. A value that looks like a commitment is none, because nobody could
    tell what is shown from what is hidden."""
    kind, value = record.get("kind"), record.get("value")
    if kind not in KINDS or isinstance(value, bool) or not isinstance(value, (str, int)):
        return None
    return None if isinstance(value, str) and is_hidden(value) else (kind, value)


def _record(raw: bytes) -> Mapping[str, Any]:
    try:
        record = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


@cache
def _report(place: str, which: str) -> None:
    """Once for each file, however often a command reads it."""
    what = "it is not of this journal" if which == "all" else f"{which} of its lines cannot be read"
    print(f"aiperf-hpc: {place}: {what}; such names are shown as the journal has them", file=sys.stderr)
