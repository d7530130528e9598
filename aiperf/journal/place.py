"""Checks of the journal's path: whether a run ever began there, and whether the journal still exists
there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from aiperf.errors import JournalError
from nas.bounded import LONGEST_LINE, opened

BEGINNING = b'{"t":0.0,"type":"Opened"'
"""How the first line of a journal begins; what begins differently is somebody's own file."""
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


def never_begun(path: Path) -> bool:
    """Whether a journal is empty, or has only a part of its first line, because its run was killed while it
    wrote it. False also if there is no journal."""
    try:
        with opened(path) as file:
            first = file.readline(LONGEST_LINE)
    except OSError:
        return False
    return not first or (first.startswith(BEGINNING) and not first.endswith(b"\n"))


def refuse_if_gone(path: Path, file: int) -> None:
    """Raises JournalError if the open file is not at its path any more: it was removed, renamed or
    replaced."""
    own = there = None
    try:
        own = os.fstat(file)
        there = os.stat(path)
    except OSError as error:
        if error.errno not in GONE:  # a fault of the file server, which the next write will report
            return
    if own and there and (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino):
        return
    place = f"the journal {path}" if path.parent.exists() else f"the run directory {path.parent}"
    what = "is gone" if there is None else "was replaced by another file"
    now = Path(f"/proc/self/fd/{file}")  # on Linux a link to the file's current path
    if own and own.st_nlink and now.exists():
        raise JournalError(f"{place} {what}: it is {now.readlink()} now; put it back and resume the run")
    raise JournalError(f"{place} {what}: nothing of the result was kept")
