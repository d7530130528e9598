"""What a run and a notary exchange: the run's requests and the notary's signed answers.

Each is a file in the run's folder with one writer, which replaces it as a whole: no reader sees half of it,
and either side may be killed at any time. Who reads one of them must expect anything in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TypeVar

from aiperf.errors import AiperfError
from aiperf.journal import strict
from nas.bounded import lines, opened
from nas.frozen import frozen
from nas.record import RecordError, decode, encode

CONTEXT = b"aiperf-hpc notary 1\n"
"""Prefix of what a notary signs, so that a signature of anything else cannot be passed off as one of it."""
LONGEST = 4 << 10
"""Maximum size of a request or of one answer in bytes; ours have less than one thousand."""
MOST_ANSWERS = 20_000
"""Maximum number of answers to one leg: a week at two per minute. The file is written as a whole each
time."""
_HASH = re.compile(r"[0-9a-f]{64}")
_SIGNATURE = re.compile(r"[0-9a-f]{128}")
_LAST_MILLISECONDS = 253_402_300_799_000
"""End of the year 9999, the last that a time of day can be shown of."""
T = TypeVar("T")


@frozen
class JournalHead:
    """A state of a journal: what its first lines were."""

    lines: int
    """Number of its whole lines."""
    bytes: int
    """Number of bytes of these lines."""
    chain: str
    """Chain of the last of them, and so a hash over all."""

    def __post_init__(self) -> None:
        if self.lines < 1 or self.bytes < 1 or not _HASH.fullmatch(self.chain):
            raise ValueError("it is not the head of a journal")

    def precedes(self, other: JournalHead) -> bool:
        return self.lines < other.lines and self.bytes < other.bytes


@frozen
class NotaryRequest:
    """What a leg of a run asks for, in `RunFiles.notary_request`."""

    asked: JournalHead
    """The journal when the leg asked for its nonce; it identifies the leg."""
    head: JournalHead
    """The journal now; the same as `asked` until there is more."""

    def text(self) -> str:
        return json.dumps(encode(self)) + "\n"


@frozen
class NotaryAnswer:
    """What a notary states about one head: a line of `RunFiles.notary_answers`.

    The first answer to a leg, of count 0, gives the nonce; its head is the one with which the leg asked.
    """

    key: str
    """Public key of the notary, Ed25519, in hexadecimal digits."""
    nonce: str
    """A random number of 32 bytes, unknown to everybody before the first answer."""
    nonces: int
    """Number of nonces that the notary has given, up to this one: as many runs and legs have asked it."""
    head: JournalHead
    milliseconds: int
    """Time of day by the notary's clock, since 1970 in UTC."""
    count: int
    """Number of answers to this leg before this one."""
    previous: str
    """Signature of the answer before; empty in the first."""
    signature: str = ""

    def __post_init__(self) -> None:
        hashes = all(_HASH.fullmatch(text) for text in (self.key, self.nonce))
        signatures = all(not text or _SIGNATURE.fullmatch(text) for text in (self.previous, self.signature))
        if not (hashes and signatures) or min(self.nonces - 1, self.milliseconds, self.count) < 0:
            raise ValueError("it is not an answer of a notary")
        if self.milliseconds > _LAST_MILLISECONDS:
            raise ValueError("its time is after the year 9999")

    @property
    def content(self) -> bytes:
        """What is signed: everything else, in one form."""
        unsigned = encode(replace(self, signature=""))
        return CONTEXT + json.dumps(unsigned, sort_keys=True, separators=(",", ":")).encode()

    @property
    def time(self) -> str:
        """The time of day in words, to the second."""
        seconds = self.milliseconds // 1000
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")

    def line(self) -> str:
        return json.dumps(encode(self)) + "\n"


class NotaryFileError(AiperfError):
    """The file is not one that a run or a notary writes. The message says why."""


def parsed_request(raw: bytes) -> NotaryRequest:
    """Raises NotaryFileError for anything but a request."""
    return _parsed(NotaryRequest, raw)


def parsed_answer(raw: bytes) -> NotaryAnswer:
    """Raises NotaryFileError for anything but an answer."""
    return _parsed(NotaryAnswer, raw)


def answers(path: Path, skipped: int = 0) -> Iterator[NotaryAnswer]:
    """The answers in a file, one by one, after the first `skipped`. Raises NotaryFileError for the first line
    that is none, and OSError if there is no such file or it cannot be read."""
    with opened(path) as file:
        for number, raw in enumerate(lines(file, LONGEST), start=1):
            if number > MOST_ANSWERS:
                raise NotaryFileError(f"it has more than {MOST_ANSWERS:,} answers")
            if number > skipped:
                yield parsed_answer(raw)


def _parsed(kind: type[T], raw: bytes) -> T:
    if len(raw) > LONGEST:
        raise NotaryFileError(f"it has more than {LONGEST:,} bytes")
    try:
        return decode(kind, strict.parsed(raw))
    except (ValueError, RecordError, RecursionError) as error:
        raise NotaryFileError(str(error)) from None
