"""Writes the journal: each line is appended and flushed by the master alone, and hidden names go into the
private file before it."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

from aiperf.errors import JournalError
from aiperf.journal.events import Event, Line, Opened
from aiperf.journal.file import JournalReader, absent, line_of
from aiperf.journal.hider import Hider
from aiperf.journal.lock import Lock
from aiperf.journal.names import PrivateFile
from aiperf.journal.run_files import RunFiles
from aiperf.os_error import OUT_OF_ROOM, unwritable
from nas.bounded import LONGEST_LINE, opened
from nas.record import encode

_BEGINNING = b'{"t":0.0,"type":"Opened"'
"""How the first line of a journal begins; what begins differently is somebody's own file."""
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


class JournalWriter:
    """Appends lines; each is passed on to the system whole before `write` returns. It must be used from one
    thread.

    It holds the lock of the run directory until `close`, so a second writer is refused. `hider` hides names;
    None: the journal hides none.
    """

    def __init__(
        self,
        files: RunFiles,
        lock: Lock,
        file: int,
        offset: int = 0,
        chain: str = "",
        hider: Hider | None = None,
    ) -> None:
        self._path = files.journal
        self._hider = hider
        self._lock = lock
        self._file = file
        self._offset = offset
        self._chain = chain

    @classmethod
    def begin(cls, files: RunFiles, salt: str = "") -> JournalWriter:
        """Creates the directory and an empty journal, and, with a salt, the private file of the names that it
        hides. Raises JournalError if that is not possible."""
        try:
            files.directory.mkdir(parents=True, exist_ok=True)
            lock = Lock.take(files.lock, beside=files.journal)
            try:
                if never_begun(files.journal):
                    files.journal.unlink()
                flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND
                file = os.open(files.journal, flags, 0o644)
                hider = Hider(PrivateFile.begin(files.private, salt), os.environ) if salt else None
                return cls(files, lock, file, hider=hider)
            except BaseException:
                lock.release()
                raise
        except FileExistsError as error:
            where = error.filename
            remedy = "resume it, or choose" if files.directory.is_dir() else "it is not a directory; choose"
            raise JournalError(f"{where} already exists; {remedy} another --directory") from None
        except OSError as error:
            raise JournalError(unwritable(error, files.directory)) from None

    @classmethod
    def resume(cls, files: RunFiles, each: Callable[[Line], object]) -> JournalWriter:
        """Calls `each` with every existing line, cuts off an unfinished last line, and appends from there.

        Raises JournalError if the journal cannot be read or written, has no whole line, or has a broken
        chain, because a run whose past was edited is not continued.
        """
        if not files.journal.exists():
            raise JournalError(absent(files.journal))
        try:
            lock = Lock.take(files.lock, beside=files.journal)
        except OSError as error:
            raise _unwritable(files.lock, error) from None
        try:
            reader, hider = JournalReader(files.journal), None
            for line in reader.new_lines():
                if isinstance(line.event, Opened) and line.event.salt_sha256 and hider is None:
                    hider = Hider(PrivateFile.resume(files.private, line.event.salt_sha256), os.environ)
                if not line.intact:
                    raise JournalError(
                        f"{files.journal}, line {line.number}: the chain is broken, so lines were changed or "
                        "removed; this run cannot be continued; start a new run"
                    )
                each(line)
            if not reader.offset:
                raise JournalError(f"{files.journal} has no complete line; remove the run and start again")
            file = os.open(files.journal, os.O_WRONLY | os.O_APPEND)
            os.ftruncate(file, reader.offset)
            return cls(files, lock, file, reader.offset, reader.chain, hider)
        except OSError as error:
            lock.release()
            raise _unwritable(files.journal, error) from None
        except BaseException:
            lock.release()
            raise

    def write(self, t: float, event: Event) -> None:
        """Appends one line; `t` is the time in seconds since the leg began.

        Raises JournalError if the line cannot be written whole; the journal then ends before it.
        """
        written = 0
        try:
            record = encode(event)
            body = {"t": float(t), **(self._hider.hidden(record) if self._hider else record)}
            text = line_of(body, self._chain)
            raw = text.encode() + b"\n"
            while written < len(raw):
                written += os.write(self._file, raw[written:])
        except OSError as error:
            # If this fails too, the rest of a torn line remains, which every reader tolerates.
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._offset)
            raise _unwritable(self._path, error, resumable=self._offset > 0) from None
        self._offset += len(raw)
        self._chain = text[-66:-2]

    @property
    def end(self) -> tuple[int, str]:
        """Number of bytes that were written, and the chain of the last line."""
        return self._offset, self._chain

    def duplicate(self) -> int:
        """Another descriptor of the file, for a thread that only synchronises it; its owner closes it."""
        return os.dup(self._file)

    def refuse_if_gone(self) -> None:
        """Raises JournalError if the open file is not at the journal's path any more: it was removed, renamed
        or replaced."""
        own = there = None
        try:
            own = os.fstat(self._file)
            there = os.stat(self._path)
        except OSError as error:
            if error.errno not in _GONE:  # a fault of the file server, which the next write will report
                return
        if own and there and (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino):
            return
        folder = self._path.parent
        place = f"the journal {self._path}" if folder.exists() else f"the run directory {folder}"
        what = "is gone" if there is None else "was replaced by another file"
        now = Path(f"/proc/self/fd/{self._file}")  # on Linux a link to the file's current path
        if own and own.st_nlink and now.exists():
            raise JournalError(f"{place} {what}: it is {now.readlink()} now; put it back and resume the run")
        raise JournalError(f"{place} {what}: nothing of the result was kept")

    def close(self) -> None:
        if self._file >= 0:
            try:
                os.fsync(self._file)
            except OSError as error:
                if error.errno != errno.EINVAL:  # EINVAL: a file that cannot be synchronised, such as a pipe
                    raise _unwritable(self._path, error) from None
            finally:
                os.close(self._file)
                self._file = -1
                if self._hider:
                    self._hider.file.close()
                self._lock.release()

    def __enter__(self) -> JournalWriter:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def never_begun(path: Path) -> bool:
    """Whether a journal is empty, or has only a part of its first line, because its run was killed while it
    wrote it. False also if there is no journal."""
    try:
        with opened(path) as file:
            first = file.readline(LONGEST_LINE)
    except OSError:
        return False
    return not first or (first.startswith(_BEGINNING) and not first.endswith(b"\n"))


def has_begun(files: RunFiles) -> bool:
    """Whether a run was started in this directory. A link that leads nowhere counts."""
    return os.path.lexists(files.journal) and not never_begun(files.journal)


def refuse_taken(files: RunFiles) -> None:
    """Raises JournalError, as `JournalWriter.begin` does, if no new run can have this directory, because it
    has one, which may be in progress, or is a file."""
    if has_begun(files) or (os.path.lexists(files.directory) and not files.directory.is_dir()):
        JournalWriter.begin(files).close()


def _unwritable(path: Path, error: OSError, resumable: bool = True) -> JournalError:
    resume = f", then: aiperf-hpc resume {path.parent}" if resumable and error.errno in OUT_OF_ROOM else ""
    return JournalError(unwritable(error, path, "choose a writable copy of the run") + resume)
