"""Transfer of kept weights and ranks' logs through messages, for hosts that do not share the run directory.

A file is sent in pieces, so that the size of a message does not grow with the network. A piece consists of a
byte with which no JSON begins (0 for weights, 1 for a log), the number of the trial or rank, the number of
the piece, the number of pieces, and a part of the file.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from aiperf.journal.run_files import RunFiles
from aiperf.os_error import unwritable

PIECE_BYTES = 16 << 20
"""Maximum size of a piece in bytes. A message under torchrun may have twice as many."""
HEAD = struct.Struct("<BQII")
WEIGHTS, LOG = 0, 1
LONGEST_LOG_BYTES = 64 << 20
"""Maximum size in bytes of a log that is sent. A rank writes at most about 100 bytes every two seconds. A
longer log remains on its host."""
LOGS_SECONDS = 120.0
"""Time limit in seconds for all logs together, as long as pieces keep arriving, because the result is shown
only after them."""


def pieces(files: RunFiles, trial: int) -> Iterator[bytes]:
    """The file of a trial's kept weights in pieces. Raises OSError."""
    yield from _pieces(files.weights(trial), WEIGHTS, trial)


def log_pieces(path: Path, rank: int) -> Iterator[bytes]:
    """The log of a rank that has ended, in pieces; none if it is too long. Raises OSError."""
    if path.stat().st_size <= LONGEST_LOG_BYTES:
        yield from _pieces(path, LOG, rank)


def _pieces(path: Path, kind: int, what: int) -> Iterator[bytes]:
    size = path.stat().st_size
    num_pieces = max(1, -(-size // PIECE_BYTES))
    with path.open("rb") as file:
        for number in range(num_pieces):
            yield HEAD.pack(kind, what, number, num_pieces) + file.read(PIECE_BYTES)


def is_piece(message: bytes) -> bool:
    return message[:1] in (b"\0", b"\1")


class Receiver:
    """Assembles files from pieces. Each file appears whole or not at all."""

    def __init__(self, files: RunFiles, hosts: Sequence[str] = ()) -> None:
        """`hosts` are those of all ranks, which are needed for logs only."""
        self.files, self.hosts = files, hosts
        self.faults: dict[Path, str] = {}
        """Reason why the last transfer of a file could not be written, by path."""

    def take(self, piece: bytes) -> None:
        """Adds a piece. The pieces of one file arrive in order."""
        kind, what, number, num_pieces = HEAD.unpack_from(piece)
        path = self.files.weights(what) if kind == WEIGHTS else self.files.witness(self.hosts[what], what)
        arriving = path.with_suffix(".arriving")
        if number == 0:
            self.faults.pop(path, None)
        try:
            if path not in self.faults:
                self._write(arriving, piece[HEAD.size :], number)
                if number == num_pieces - 1:
                    os.replace(arriving, path)
        except OSError as error:
            self.faults[path] = unwritable(error, path)
            with contextlib.suppress(OSError):  # a remaining file is overwritten by the next attempt
                arriving.unlink(missing_ok=True)

    def _write(self, path: Path, content: bytes, number: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb" if number == 0 else "ab") as file:
            file.write(content)
