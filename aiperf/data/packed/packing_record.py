"""The record of a packing that is not finished: a line for each finished shard."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import BinaryIO

from aiperf.errors import DataError
from aiperf.os_error import unreadable
from nas.bounded import read_bytes

KEYS = {"shard", "source", "sha256"}


class PackingRecord:
    """One process, which is alone in the folder, adds lines."""

    def __init__(self, path: Path) -> None:
        self._path, self._adding = path, Lock()
        self._file: BinaryIO = path.open("ab")
        self._file.truncate(path.read_bytes().rfind(b"\n") + 1)  # of a line that was torn

    def __enter__(self) -> PackingRecord:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, line: str) -> None:
        """From any thread; it is on the disk when this returns."""
        with self._adding:
            self._file.write(f"{line}\n".encode())
            self._file.flush()
            os.fsync(self._file.fileno())

    def remove(self) -> None:
        self._path.unlink()

    @staticmethod
    def lines(path: Path) -> Iterator[dict[str, str]]:
        """Reads the record of an earlier packing; its last line may be torn, and is omitted. Raises
        DataError."""
        try:
            *whole, _ = read_bytes(path).split(b"\n")
        except OSError as error:
            raise DataError(unreadable(error, path, "remove the folder and pack again")) from None
        for number, raw in enumerate(whole, start=1):
            try:
                line = json.loads(raw)
                if set(line) != KEYS or not all(isinstance(value, str) for value in line.values()):
                    raise ValueError("it has other keys")
            except (ValueError, TypeError) as error:
                raise DataError(
                    f"{path}:{number}: not a packing record ({error}); remove the folder and pack again"
                ) from None
            yield line
