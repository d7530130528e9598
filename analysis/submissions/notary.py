"""The notary: it signs what runs hand over, with its own time, and keeps a record of all that it signed.

It reads and writes two files of each leg in the folders of runs (`aiperf.journal.notary`), which may belong
to anybody: no link is followed, no file of another name is opened, and nothing in a folder is believed. What
it knows is in its own record, one file per leg. An answer is in the record, on disk, before it is published,
so a notary that was killed goes on where it was, and never signs two answers with one count.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from itertools import islice
from pathlib import Path

from aiperf.errors import AiperfError
from aiperf.host.other_users import NotOurs, make_private
from aiperf.journal.notary import (
    LONGEST,
    MOST_ANSWERS,
    NotaryAnswer,
    NotaryFileError,
    NotaryRequest,
    answers,
    parsed_answer,
    parsed_request,
)
from aiperf.journal.run_files import RunFiles
from aiperf.os_error import reason, unwritable
from aiperf.wording import plain
from nas.bounded import read_bytes
from nas.frozen import frozen

LIST = "nonces.txt"
"""File of the record with a line for each nonce: its number, its time, itself and the run."""
MOST_RUNS = 10_000
"""Maximum number of folders that are looked at in one pass; further ones wait until some are removed."""
MOST_FILES = 1_000
"""Likewise of files in the folder of one run."""
MOST_SEEN = 100_000
"""Number of requests that are remembered as answered."""
NONCE_MILLISECONDS = 5_000
"""Least time between two nonces for one run's folder: no honest run is resumed sooner, and a hostile one must
not fill the record."""
_REQUEST = re.compile(r"(\d{1,6})\.request\.json")
"""Name of the file in which a leg asks, with the leg's number."""
_FOLDER = RunFiles(Path()).notary_directory.name
"""Folder of requests and answers in that of a run."""
_LINKLESS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""Flags of every open in a folder that may be anybody's: no link is followed, and no pipe is waited for."""


@frozen
class FileState:
    """What tells one version of a request from the next."""

    inode: int
    size: int
    changed: int
    """In nanoseconds, by the file server's clock."""


class Notary:
    """A notary with one key and one record, used from one thread.

    `sign` signs a content; `milliseconds` gives the time of day in UTC. Raises AiperfError if the record
    cannot be used, or another notary uses it.
    """

    def __init__(
        self, public: str, sign: Callable[[bytes], str], record: Path, milliseconds: Callable[[], int]
    ) -> None:
        self._public, self._sign, self._milliseconds = public, sign, milliseconds
        try:
            self._record = make_private(record)
            self._lock = os.open(record / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._nonces = max(map(_nonces, record.glob("*.jsonl")), default=0)
        except BlockingIOError:
            raise AiperfError(f"{record} is in use by another notary; stop it, or give --record") from None
        except NotOurs as error:
            raise AiperfError(f"{error}; give another folder with --record") from None
        except OSError as error:
            raise AiperfError(unwritable(error, record, "give another folder with --record")) from None
        self._seen: dict[tuple[str, str], FileState] = {}
        self._last_nonce: dict[str, int] = {}

    def close(self) -> None:
        """Lets another notary use the record."""
        os.close(self._lock)

    def look(self, directory: Path) -> Iterator[str]:
        """One pass over the runs in a folder, or over the run that it is. Yields what a person should
        know."""
        runs = [directory.resolve()]  # which may be a link, as the user names it
        if not RunFiles(directory).journal.is_file():
            with os.scandir(directory) as entries:
                folders = (Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
                runs = list(islice(folders, MOST_RUNS + 1))
            if len(runs) > MOST_RUNS:
                yield f"{directory} has more than {MOST_RUNS:,} folders, of which not all are looked at"
        for run in runs[:MOST_RUNS]:
            try:
                with _folder(run) as (folder, owner):
                    for name in _requests(folder):
                        yield from self._answer(run, folder, owner, name)
            except FileNotFoundError:  # most folders ask nothing, and a run may be removed meanwhile
                continue
            except OSError as error:
                why = f"{reason(error)}; the notary must be able to read and write there"
                yield f"{run / _FOLDER} cannot be used: {why}"

    def _answer(self, run: Path, folder: int, owner: int, name: str) -> Iterator[str]:
        """Answers one request, if it says something new, and publishes the answers. Yields what the operator
        should know."""
        raw, seen = _read(folder, name, owner)
        if self._seen.get((run.name, name)) == seen:
            return
        try:
            request = parsed_request(raw)
            leg = _Leg.read(self._record, f"{run.name}/{request.asked.chain}")
            if (answer := self._next(run.name, leg.last, request)) is not None:
                leg = leg.append(replace(answer, signature=self._sign(answer.content)))
                if answer.count == 0:
                    self._began(answer, run)
        except (NotaryFileError, _Refused) as error:
            yield f"{run}: {name}: {error}"
            return
        if answer is not None and answer.count == 0:
            yield f"{run}: nonce {answer.nonces} was given"
        if leg.last is None:
            return
        published = name.replace("request.json", "answers.jsonl")
        if answer is not None or not _has(folder, published, leg.text):
            _replace(folder, published, leg.text)
        if len(self._seen) > MOST_SEEN:
            self._seen.clear()
            self._last_nonce.clear()
        self._seen[run.name, name] = seen

    def _began(self, answer: NotaryAnswer, run: Path) -> None:
        """Notes whose nonce it was: the list of all runs that asked, for the operator."""
        self._nonces, self._last_nonce[run.name] = answer.nonces, answer.milliseconds
        with (self._record / LIST).open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{answer.nonces} {answer.time} {answer.nonce} {plain(str(run))}\n")

    def _next(self, run: str, last: NotaryAnswer | None, request: NotaryRequest) -> NotaryAnswer | None:
        """The next answer to a leg, unsigned; None if there is nothing new. Raises _Refused."""
        now = self._milliseconds()
        if last is None:
            if now < self._last_nonce.get(run, 0) + NONCE_MILLISECONDS:
                return None
            return NotaryAnswer(
                self._public, secrets.token_hex(32), self._nonces + 1, request.asked, now, 0, ""
            )
        if not last.head.precedes(request.head):
            return None
        if last.key != self._public:
            raise _Refused("its leg began with another key; nothing more is signed for it")
        if now < last.milliseconds:
            raise _Refused("the clock of this host went back; nothing is signed until it has caught up")
        if last.count + 1 >= MOST_ANSWERS:
            raise _Refused(f"its leg has {MOST_ANSWERS:,} answers, the limit")
        return NotaryAnswer(
            self._public, last.nonce, last.nonces, request.head, now, last.count + 1, last.signature
        )


class _Refused(Exception):
    """A request is not answered now. The message says why."""


@frozen
class _Leg:
    """All answers to one leg, as the record has them."""

    path: Path
    text: bytes
    """The answers as they are published."""
    last: NotaryAnswer | None
    """The last answer; None before the first."""

    @classmethod
    def read(cls, record: Path, leg: str) -> _Leg:
        """A torn last line, of a notary that was killed while it wrote, was never published and is cut
        off."""
        path = record / f"{sha256(leg.encode(errors='surrogateescape')).hexdigest()}.jsonl"
        with suppress(FileNotFoundError):
            held = read_bytes(path, LONGEST * MOST_ANSWERS)
            text = held[: held.rfind(b"\n") + 1]
            if len(text) < len(held):
                os.truncate(path, len(text))
            try:
                return cls(path, text, parsed_answer(text.splitlines()[-1]) if text else None)
            except NotaryFileError as error:
                raise _Refused(f"the record {path} is damaged: {error}") from None
        return cls(path, b"", None)

    def append(self, answer: NotaryAnswer) -> _Leg:
        """Returns once the answer is on disk. Raises _Refused if it cannot be written."""
        line = answer.line().encode()
        try:
            file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                _write(file, line)
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            raise _Refused(unwritable(error, self.path, "make the record writable")) from None
        return _Leg(self.path, self.text + line, answer)


def _nonces(path: Path) -> int:
    """The number of the nonce with which a leg of the record began; 0 if its first line is torn."""
    try:
        return next(answers(path)).nonces
    except (NotaryFileError, StopIteration):
        return 0


@contextmanager
def _folder(run: Path) -> Iterator[tuple[int, int]]:
    """The folder of a run's requests, reached without following a link, and the user whose run it is."""
    above = os.open(run, os.O_RDONLY | os.O_DIRECTORY | _LINKLESS)
    try:
        owner = os.fstat(above).st_uid
        folder = os.open(_FOLDER, os.O_RDONLY | os.O_DIRECTORY | _LINKLESS, dir_fd=above)
    finally:
        os.close(above)
    try:
        yield folder, owner
    finally:
        os.close(folder)


def _requests(folder: int) -> Iterator[str]:
    """Names of the requests in a folder, sorted; other files are never opened."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in islice(entries, MOST_FILES) if _REQUEST.fullmatch(entry.name)]
    return iter(sorted(names))


def _read(folder: int, name: str, owner: int) -> tuple[bytes, FileState]:
    """A small file of the run's owner. Raises OSError for anything else."""
    file = os.open(name, os.O_RDONLY | _LINKLESS, dir_fd=folder)
    try:
        state = os.fstat(file)
        if not stat.S_ISREG(state.st_mode) or state.st_uid != owner:
            raise OSError(errno.EPERM, f"{name} is not a file of the run's owner")
        return os.read(file, LONGEST + 1), FileState(state.st_ino, state.st_size, state.st_mtime_ns)
    finally:
        os.close(file)


def _has(folder: int, name: str, content: bytes) -> bool:
    """Whether a file has exactly this content, as after an earlier pass."""
    try:
        file = os.open(name, os.O_RDONLY | _LINKLESS, dir_fd=folder)
    except OSError:
        return False
    try:
        state = os.fstat(file)
        if not stat.S_ISREG(state.st_mode) or state.st_size != len(content):
            return False
        while content and (piece := os.read(file, len(content))) and content.startswith(piece):
            content = content[len(piece) :]
        return not content
    finally:
        os.close(file)


def _replace(folder: int, name: str, content: bytes) -> None:
    """Writes a new file and gives it the name: a file that is there, or what a link leads to, is never
    written into."""
    partial = f"{name}.part"
    with suppress(FileNotFoundError):
        os.unlink(partial, dir_fd=folder)
    file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _LINKLESS, 0o644, dir_fd=folder)
    try:
        _write(file, content)
    finally:
        os.close(file)
    os.rename(partial, name, src_dir_fd=folder, dst_dir_fd=folder)


def _write(file: int, content: bytes) -> None:
    """Writes all of the content: the system may take it in several parts."""
    while content:
        content = content[os.write(file, content) :]
