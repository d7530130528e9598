"""Kept weights and ranks' logs on their way through MPI, for hosts that do not see the run directory.

A file travels in pieces, so that no message grows with the network. A piece is a byte that no JSON begins
with, 0 for weights and 1 for a log, the number of the trial or of the rank, the piece's, how many there
are, and content of the file.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from aiperf.files import RunFiles

PIECE_BYTES = 16 << 20
HEAD = struct.Struct("<BQII")
WEIGHTS, LOG = 0, 1
# Of one rank, which writes at most about 100 bytes every two seconds. A longer log stays where it is.
LONGEST_LOG_BYTES = 64 << 20
# For all logs together, while they keep coming. A result that nobody sees for longer is worth more than they.
LOGS_SECONDS = 120.0


def pieces(files: RunFiles, trial: int) -> Iterator[bytes]:
    """The file of a trial's kept weights. Raises OSError."""
    yield from _pieces(files.weights(trial), WEIGHTS, trial)


def log_pieces(path: Path, rank: int) -> Iterator[bytes]:
    """The log of a rank that writes no more; nothing if it is too long. Raises OSError."""
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
    """Puts files together; each appears whole or not at all."""

    def __init__(self, files: RunFiles, hosts: Sequence[str] = ()) -> None:
        """`hosts` of all ranks, where logs are to come."""
        self.files, self.hosts = files, hosts
        self.faults: dict[Path, str] = {}
        """Why the last file that came of these could not be written."""

    def take(self, piece: bytes) -> None:
        """Pieces of one file come in order."""
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
            self.faults[path] = f"{path} cannot be written ({error.strerror}); free some space"
            with contextlib.suppress(OSError):  # what is left is overwritten by the next attempt
                arriving.unlink(missing_ok=True)

    def _write(self, path: Path, content: bytes, number: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb" if number == 0 else "ab") as file:
            file.write(content)
