"""What a rank writes down of its own work before it reports it: a second witness beside the journal. After
the run, the rule that reads these files compares them with the segments in the journal
(`aiperf.rules.rank_logs`)."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from types import TracebackType

from aiperf.errors import WorldError
from aiperf.os_error import naming, unwritable
from aiperf.tasks.tally import Tally


class NoLog:
    """Takes what a rank did itself where nobody will read it; its group did the sum over its ranks."""

    def steps(self, trial: int, attempt: int, segment: int, steps: int, examples: int) -> None:
        """A block of steps, and the examples of them that this rank trained on. Numbers are of this rank
        alone, and are written before the group sums them."""

    def answers(self, trial: int, attempt: int, segment: int, tally: Tally) -> None:
        """The validation that closed a segment: what this rank found of its share."""

    def digest(self) -> bytes:
        """SHA-256 of all that was written so far; nothing if nobody will read it. Validations carry it, so
        that the journal fixes what the file held at that moment."""
        return b""


class StepLog(NoLog):
    """A file of one JSON object a line, each flushed. From one thread.

    A rank that is started again appends, so the digest is of the whole file. A line is written whole or
    not at all: what a killed rank or a full disk left of one is cut off.
    """

    def __init__(self, path: Path) -> None:
        """Raises WorldError if the file cannot be written."""
        self._path, self._hash, self._bytes = path, sha256(), 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab", buffering=0)
            self._read()
        except OSError as error:
            raise WorldError(unwritable(error, path)) from None

    def _read(self) -> None:
        """Reads what an earlier process wrote, and cuts off an unfinished last line."""
        with self._path.open("rb") as before:
            for line in before:
                if not line.endswith(b"\n"):
                    break
                self._hash.update(line)
                self._bytes += len(line)
        self._file.truncate(self._bytes)

    def steps(self, trial: int, attempt: int, segment: int, steps: int, examples: int) -> None:
        self._write(trial=trial, attempt=attempt, segment=segment, steps=steps, examples=examples)

    def answers(self, trial: int, attempt: int, segment: int, tally: Tally) -> None:
        self._write(trial=trial, attempt=attempt, segment=segment, **asdict(tally))

    def digest(self) -> bytes:
        return self._hash.digest()

    def _write(self, **record: int) -> None:
        """Appends a line, whole or not at all. Raises OSError with the path."""
        line = json.dumps(record).encode() + b"\n"
        written = 0
        try:
            with naming(self._path):
                while written < len(line):
                    written += os.write(self._file.fileno(), line[written:])
        except OSError:
            self._file.truncate(self._bytes)
            raise
        self._hash.update(line)
        self._bytes += len(line)

    def __enter__(self) -> StepLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
