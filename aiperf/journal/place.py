"""The journal's place: whether a run ever began there, and whether the journal is still there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from aiperf.errors import JournalError
from nas.bounded import opened

GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


def never_begun(path: Path) -> bool:
    """Whether a journal was made and its first line was not: its run was killed as it began. False also for
    what is not a journal."""
    try:
        with opened(path) as file:
            return file.seek(0, os.SEEK_END) == 0
    except OSError:
        return False


def refuse_if_gone(path: Path, file: int) -> None:
    """Raises JournalError when the open file is not at its path: it was removed, renamed or replaced."""
    own = there = None
    try:
        own = os.fstat(file)
        there = os.stat(path)
    except OSError as error:
        if error.errno not in GONE:  # of a file server that is ill: the next line that is written will tell
            return
    if own and there and (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino):
        return
    place = f"the journal {path}" if path.parent.exists() else f"the run directory {path.parent}"
    what = "is gone" if there is None else "was replaced by another file"
    now = Path(f"/proc/self/fd/{file}")  # Linux knows what it is called now
    if own and own.st_nlink and now.exists():
        raise JournalError(f"{place} {what}: it is {now.readlink()} now; put it back and resume the run")
    raise JournalError(f"{place} {what}: nothing of the result was kept")
