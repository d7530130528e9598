"""The journal on disk: one JSON object per line, appended and flushed by the master alone.

A line is {"t": seconds, "type": event, …, "chain": hash}; `chain` is the SHA-256 of the chain before it and
of the line as it is written, without its chain. A chain reveals only accidents and careless edits: whoever
edits a journal can compute the chain again, and is caught by the rules that compare recorded facts instead.

What identifies a person or a site is hidden before the chain is computed (`aiperf.journal.hidden`), and shown
again when the journal is read next to its private file. `aiperf.journal.writer` writes it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

from aiperf.errors import JournalError
from aiperf.journal import strict
from aiperf.journal.events import Closed, Event, Line, Opened, Stepped
from aiperf.journal.hidden import shown
from aiperf.journal.names import Names
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RUNS, RunFiles, run_directories
from aiperf.journal.usual_lines import Read, UsualLines
from aiperf.os_error import unreadable
from aiperf.tasks.data import NoSuchTask
from nas.bounded import LONGEST_LINE, in_blocks, lines, opened
from nas.frozen import frozen
from nas.record import RecordError, decode, encode

VERSION = 4
"""Version of the journal's form; a journal of another version is refused."""
RULES_VERSION = 3
"""Version of the rules. A run states that under which it was made, and a later demand of the class ranked
holds from its version on (`aiperf.rules.verdict`)."""
_WRITTEN = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False)
_TAIL = len(',"chain":""}') + 64
"""Bytes at the end of each line that its own hash is not made of: the hash has 64 hexadecimal digits."""


class JournalReader:
    """Reads a journal while it grows: each call of `new_lines` continues where the last one ended.

    Hidden names are shown if the private file is next to the journal and fits.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names = Names(path)
        self.offset = 0
        """Number of bytes of the whole lines that were read."""
        self.chain = ""
        self._number = 0
        self._usual = UsualLines()

    def new_lines(self) -> Iterator[Line]:
        """The whole lines that were written since the last call. An unfinished last line is left for later.

        Raises JournalError for a file that does not exist, is not a journal, has another version, or is
        damaged (with the number of the line). A broken chain is reported with its line, not raised.
        """
        for raw in self._new_raw_lines():
            t, kind, content, chain = self._read(self._number + 1, raw)
            intact = self._is_intact(raw, chain)
            yield Line(self._number, t, _event(kind, content), chain, intact)

    def fold_into(self, replay: Replay) -> None:
        """Adds the new lines to a replay, without an event for each block of steps and validation, which are
        most of a long journal. Raises JournalError as `new_lines`.

        A block of lines is read, then hashed, then folded. Line by line it takes a tenth to a fifth longer
        (measured), presumably because these parts then displace each other in the caches of the processor.
        """
        for block in in_blocks(self._new_raw_lines()):
            first = self._number + 1
            read = [self._read(number, raw) for number, raw in enumerate(block, first)]
            intact = [self._is_intact(raw, chain) for raw, (_, _, _, chain) in zip(block, read)]
            for number, (t, kind, content, chain), is_intact in zip(count(first), read, intact):
                replay.add_read(number, t, kind, content, chain, is_intact)

    def _new_raw_lines(self) -> Iterator[bytes]:
        try:
            with opened(self.path) as file:
                if file.seek(0, os.SEEK_END) < self.offset:
                    raise JournalError(f"{self.path} became shorter while it was read; read it again")
                file.seek(self.offset)
                for raw in lines(file):
                    if not raw.endswith(b"\n") and len(raw) <= LONGEST_LINE:
                        return
                    yield raw
        except (FileNotFoundError, NotADirectoryError):
            raise JournalError(absent(self.path)) from None
        except OSError as error:
            raise JournalError(unreadable(error, self.path, "give a run directory")) from None

    def _read(self, number: int, raw: bytes) -> Read:
        return (number > 1 and self._usual.read(raw, self.names)) or self._parsed(number, raw)

    def _is_intact(self, raw: bytes, chain: str) -> bool:
        """Goes on to the next line, and returns whether the chain of this one is that of its text."""
        intact = chain == _link(self.chain, raw[: -_TAIL - 1] + b"}")
        self.chain, self._number, self.offset = chain, self._number + 1, self.offset + len(raw)
        return intact

    def _parsed(self, number: int, raw: bytes) -> Read:
        """Reads a line as JSON. The first line names the private file whose values are shown from then on."""
        try:
            if len(raw) > LONGEST_LINE:
                raise ValueError(f"it has more than {LONGEST_LINE:,} bytes")
            record = strict.parsed(raw)
            if number == 1:
                self._refuse_foreign(record)
            if not isinstance(record, dict):
                raise RecordError("it is not a JSON object")
            t, chain = record.pop("t"), record.pop("chain")
            if number == 1 and type(published := record.get("salt_sha256")) is str:
                self.names = Names.at(RunFiles(self.path.parent).private, published)
            event = decode(Event, shown(record, self.names))
            if type(t) is not float or type(chain) is not str:
                raise RecordError("`t` or `chain` is not of its type")
            return t, type(event), event.row if isinstance(event, (Stepped, Closed)) else event, chain
        except NoSuchTask as error:
            raise JournalError(
                f"{self.path} is of a task that is not installed: {error}; install its package"
            ) from None
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else error
            raise JournalError(f"{self.path}, line {number} is damaged: {what}") from None

    def _refuse_foreign(self, record: object) -> None:
        if not isinstance(record, dict) or record.get("type") != Opened.__name__:
            raise JournalError(f"{self.path} is not a journal of aiperf-hpc: its first line is not Opened")
        version = record.get("version")
        if type(version) is int and version != VERSION:
            raise JournalError(
                f"{self.path} is a journal of version {version}, written by aiperf-hpc "
                f"{record.get('program')}; this program reads version {VERSION} only: install that one"
            )


@frozen
class Position:
    """The end of a line of a journal, as its bytes give it."""

    t: float
    bytes: int
    """Number of bytes up to here."""
    chain: str
    """Chain as computed from all lines up to here, whatever they state."""


def positions(path: Path, numbers: Collection[int]) -> dict[int, Position]:
    """The ends of lines by their numbers, as far as the journal has these lines. To hash lines takes a
    fraction of the time that it takes to read them. Raises JournalError for a file that cannot be read, and
    for a line without a time."""
    found, chain, end, last = dict[int, Position](), "", 0, max(numbers, default=0)
    try:
        with opened(path) as file:
            for number, raw in enumerate(lines(file), start=1):
                if number > last or not raw.endswith(b"\n"):
                    break
                chain, end = _link(chain, raw[: -_TAIL - 1] + b"}"), end + len(raw)
                if number in numbers:
                    found[number] = Position(float(strict.parsed(raw)["t"]), end, chain)
    except OSError as error:
        raise JournalError(unreadable(error, path, "give a run directory")) from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise JournalError(f"{path}: line {number} cannot be read: {error}") from None
    return found


def read_journal(path: Path) -> list[Line]:
    """All whole lines. Raises JournalError as `JournalReader.new_lines`, and for a journal without any."""
    found = list(JournalReader(path).new_lines())
    if not found:
        raise JournalError(
            f"{path} has no complete line yet: the run has not started; if it was killed, start it again"
        )
    return found


def _event(kind: type[Event], content: Any) -> Event:
    event: Event = kind.of(content) if issubclass(kind, (Stepped, Closed)) else content
    return event


def chained(events: Iterable[tuple[float, Event]], chain: str = "") -> Iterator[str]:
    """The lines for these events and times, without line ends, to follow a line with the chain `chain`."""
    for t, event in events:
        line = line_of({"t": float(t), **encode(event)}, chain)
        chain = line[-66:-2]
        yield line


def line_of(record: dict[str, object], chain: str) -> str:
    """The line for a record, without its end, to follow a line with the chain `chain`."""
    body = _WRITTEN.encode(record)
    return f'{body[:-1]},"chain":"{_link(chain, body.encode())}"}}'


def _link(chain: str, body: bytes) -> str:
    return sha256(chain.encode() + body).hexdigest()


def absent(journal: Path) -> str:
    """The line on a journal that does not exist; it names a run that is one folder deeper or higher."""
    folder = journal.parent
    below = run_directories(folder) if os.access(folder, os.R_OK | os.X_OK) and folder.is_dir() else []
    near = [
        *below[-1:],
        *(each for each in (folder.absolute().parent, RUNS / folder) if RunFiles(each).journal.is_file()),
    ]
    return f"no journal at {journal}; give a run directory" + (f", such as {near[0]}" if near else "")
