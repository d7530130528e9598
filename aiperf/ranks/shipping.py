"""Kept weights on their way through MPI, for hosts that do not see the run directory.

A file travels in pieces, so that no message grows with the network. A piece is a zero byte (which no
JSON begins with), the trial's number, the piece's, how many there are, and content of the file.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from aiperf.files import RunFiles

PIECE_BYTES = 16 << 20
HEAD = struct.Struct("<BQII")


def pieces(files: RunFiles, trial: int) -> Iterator[bytes]:
    """The file of a trial's kept weights. Raises OSError."""
    path = files.weights(trial)
    size = path.stat().st_size
    num_pieces = max(1, -(-size // PIECE_BYTES))
    with path.open("rb") as file:
        for number in range(num_pieces):
            yield HEAD.pack(0, trial, number, num_pieces) + file.read(PIECE_BYTES)


def is_piece(message: bytes) -> bool:
    return message[:1] == b"\0"


class Receiver:
    """Puts files together; each appears whole or not at all."""

    def __init__(self, files: RunFiles) -> None:
        self.files = files
        self.faults: dict[int, str] = {}
        """By trial, why the last file that came of it could not be written."""

    def take(self, piece: bytes) -> None:
        """Pieces of one file come in order."""
        _, trial, number, num_pieces = HEAD.unpack_from(piece)
        path = self.files.weights(trial)
        arriving = path.with_suffix(".arriving")
        if number == 0:
            self.faults.pop(trial, None)
        try:
            if trial not in self.faults:
                self._write(arriving, piece[HEAD.size :], number)
                if number == num_pieces - 1:
                    os.replace(arriving, path)
        except OSError as error:
            self.faults[trial] = f"{path} cannot be written ({error.strerror}); make room"
            with contextlib.suppress(OSError):  # what is left is overwritten by the next attempt
                arriving.unlink(missing_ok=True)

    def _write(self, path: Path, content: bytes, number: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb" if number == 0 else "ab") as file:
            file.write(content)
