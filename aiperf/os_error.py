"""What an error of the operating system says to a user: what happened, where, and what to do about it.

Many causes lie outside the file that was to be read or written: a limit of the process, a full disk, a file
server that failed. Each has its own remedy here. The remedy of all other causes depends on the file, and the
caller knows it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

MORE_MEMORY = "request more memory (or raise ulimit -v), or run fewer processes on this host"
_SERVER = "the file server failed: check that the file system is mounted here, then try again"
_REMEDIES: Mapping[int, str] = {
    errno.EMFILE: "raise the limit on open files of a process (ulimit -n)",
    errno.ENFILE: "this host has too many open files: close some programs, or have fs.file-max raised",
    errno.ENOMEM: MORE_MEMORY,
    errno.EIO: "the disk or its file server failed: check both, or use another file system",
    errno.ESTALE: _SERVER,
    errno.ENOTCONN: _SERVER,
    errno.EHOSTDOWN: _SERVER,
    errno.EHOSTUNREACH: _SERVER,
    errno.ETIMEDOUT: _SERVER,
    errno.ELOOP: "its symbolic links lead in a circle: correct them",
    errno.ENAMETOOLONG: "use a shorter path",
}
"""Remedies that do not depend on the file."""
_OF_READING: Mapping[int, str] = {
    **_REMEDIES,
    errno.EACCES: "make it readable",
    errno.EPERM: "make it readable",
}
_OF_WRITING: Mapping[int, str] = {
    **_REMEDIES,
    errno.ENOSPC: "free some space on this file system",
    errno.EDQUOT: "remove some of your own files, or have your quota raised",
    errno.EFBIG: "raise the limit on the size of a file (ulimit -f)",
    errno.EROFS: "choose a directory on a file system that is not read-only",
    errno.EACCES: "choose a directory that you may write to",
    errno.EPERM: "choose a directory that you may write to",
}
SHOWN = 400
"""Longest path that is shown whole, in characters."""
OUT_OF_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""After these errors the same directory can be used once there is room again."""


def unreadable(error: OSError, path: object = None, otherwise: str = "make it readable") -> str:
    """The line on a file or folder that cannot be read. `otherwise` is the remedy if the cause lies in the
    file itself."""
    where = _where(error, path)
    if error.errno == errno.ENOENT and where.is_symlink():
        return (
            f"{where}: is a link to {where.readlink()}, which does not exist; restore that or remove the link"
        )
    if error.errno == errno.EACCES and (closed := _closed(where)):
        return f"{where}: {reason(error)}; make the folder {closed} accessible (chmod u+rx)"
    return f"{_short(where)}: {reason(error)}; {_OF_READING.get(error.errno or 0, otherwise)}"


def unwritable(error: OSError, path: object = None, otherwise: str = "choose another directory") -> str:
    """The line on a file or folder that cannot be written. `otherwise` is the remedy if the cause lies in
    the path itself."""
    where = _where(error, path)
    return (
        f"{_short(where)} cannot be written: {reason(error)}; {_OF_WRITING.get(error.errno or 0, otherwise)}"
    )


def refused(error: OSError) -> str:
    """The line on an error of which nobody said whether something was read or written."""
    where = f"{os.fsdecode(error.filename)}: " if error.filename else ""
    remedy = _OF_WRITING.get(error.errno or 0, "")
    return f"{where}{reason(error)}{remedy and f'; {remedy}'}"


def is_of_system(error: BaseException) -> bool:
    """Whether the operating system refused something, so that the content of a file is not to blame.
    Libraries raise OSError without a number for damaged content."""
    return isinstance(error, OSError) and error.errno is not None


def reason(error: OSError) -> str:
    """What happened, in the system's words."""
    return error.strerror or str(error)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """A context for writing a file: the system names it in an error only if it cannot be opened, so this does
    it for errors of writing, too."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and not error.filename:
            error.filename = str(path)
        raise


def _where(error: OSError, path: object) -> Path:
    return Path(str(path) if path else os.fsdecode(error.filename or "a file"))


def _short(path: Path) -> str:
    """The path in a message: the system refuses one that is too long, and nobody reads it."""
    text = str(path)
    return text if len(text) <= SHOWN else f"{text[: SHOWN // 2]}…{text[-SHOWN // 4 :]}"


def _closed(path: Path) -> str:
    """The first folder on the way to a path that this user may not enter; empty if there is none."""
    return next((str(folder) for folder in reversed(path.parents) if _bars(folder)), "")


def _bars(folder: Path) -> bool:
    return folder.is_dir() and not os.access(folder, os.X_OK)
