"""The lock of a run directory: one master at a time, on any host that sees the directory."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from pathlib import Path

from aiperf.errors import JournalError
from nas.frozen import frozen

SILENCE_SECONDS = 30.0
"""Time in seconds after the last line after which a master is taken for dead; it writes one at least every
ten seconds."""

# Errors by which file systems without locks (some Lustre and NFS mounts) refuse one.
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


@frozen
class Lock:
    """A lock that is held until `release`, or until the process ends in any way."""

    path: Path
    file: int

    @classmethod
    def take(cls, path: Path, beside: Path) -> Lock:
        """Takes the lock. Raises JournalError, which names process and host, if another process holds it.

        The system's record lock decides; it ends with its process and is not passed on to children. If the
        file system has no locks across hosts, it is decided by whether `beside`, the journal, still grows.
        """
        file = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        try:
            locked = _locked(file)
            holder = _holder(file)
            if locked is False or (holder and not _died(holder, locked) and _grows(beside, file)):
                raise JournalError(
                    f"{path.parent} belongs to a run in progress: {_named(holder)}; wait until it ends, or "
                    f"choose another directory"
                )
            os.ftruncate(file, 0)
            record = json.dumps({"pid": os.getpid(), "host": os.uname().nodename})
            os.pwrite(file, record.encode(), 0)
            return cls(path, file)
        except BaseException:
            os.close(file)
            raise

    def release(self) -> None:
        """Releases the lock, and empties the file, so that the next process finds no holder in it."""
        os.ftruncate(self.file, 0)
        os.close(self.file)


def seconds_until_dead(path: Path, beside: Path) -> float:
    """For how long a lock may count that a dead master has left, in seconds; at most SILENCE_SECONDS. 0 if
    nobody holds it, and if the holder is a process of this host, whose record lock says whether it lives."""
    try:
        file = os.open(path, os.O_RDWR)
    except OSError:  # there is none, or `take` says what is wrong with it
        return 0.0
    try:
        locked, holder = _locked(file), _holder(file)
        if not holder or (locked is not None and holder.get("host") == os.uname().nodename):
            return 0.0
        return min(SILENCE_SECONDS, max(0.0, SILENCE_SECONDS - _silence(beside, file)))
    finally:
        os.close(file)


def _locked(file: int) -> bool | None:
    """Tries to take the record lock; returns whether it succeeded, or None if the file system has no
    locks."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        if error.errno not in _NO_LOCKS:
            raise
        return None
    return True


def _holder(file: int) -> dict[str, object]:
    try:
        found = json.loads(os.pread(file, 4096, 0) or b"{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _died(holder: dict[str, object], locked: bool | None) -> bool:
    """Whether the holder was a process of this host that has died, since we have its lock now."""
    return bool(locked) and holder.get("host") == os.uname().nodename and holder.get("pid") != os.getpid()


def _grows(journal: Path, file: int) -> bool:
    """Whether the journal was written to within SILENCE_SECONDS."""
    return journal.exists() and _silence(journal, file) < SILENCE_SECONDS


def _silence(journal: Path, file: int) -> float:
    """Seconds since the journal was written to. Both times are from the file server, so no host's clock is
    compared with another's."""
    os.utime(file)
    return os.fstat(file).st_mtime - journal.stat().st_mtime


def _named(holder: dict[str, object]) -> str:
    return f"process {holder.get('pid', 'unknown')} on {holder.get('host', 'an unknown host')}"
