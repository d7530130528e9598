"""One process at a time in a folder, by a lock on a file that is never removed."""

from __future__ import annotations

import errno
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiperf.errors import DataError

LOCK = ".lock"
"""Whoever opened a file that is then removed would hold a lock that nobody else sees: so it stays."""


@contextmanager
def alone(folder: Path, busy: str = "") -> Iterator[None]:
    """Waits for another process that holds the folder; with `busy` raises DataError of these words instead.

    Makes the folder. Raises DataError where the file system has no locks, and OSError for a folder that
    cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
        except OSError as error:
            if busy and error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
                raise DataError(busy) from None
            raise DataError(
                f"{folder / LOCK}: cannot be locked ({error.strerror}); use a file system with locks "
                f"(Lustre: mount it with -o flock)"
            ) from None
        yield
