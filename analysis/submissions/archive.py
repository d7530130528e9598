"""Archives of submissions: written the same every time, read as if a stranger had made them.

Nothing of an archive decides where a file goes or how large it grows: names are checked against what a
package may hold, links and devices are refused, and growing stops at a bound.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import stat
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from aiperf.errors import AiperfError
from aiperf.journal.run_files import RunFiles
from aiperf.os_error import unreadable, unwritable
from nas.bounded import opened
from nas.frozen import frozen

FORM = "aiperf-hpc/package/1"
"""The form of a package, as its manifest states it; another number is for another version of the program."""
NAME = re.compile(
    r"(?:manifest|seal|system)\.json"
    r"|runs/[A-Za-z0-9][A-Za-z0-9._-]{0,99}/(?:journal\.jsonl|private\.jsonl|config\.toml|result\.json"
    r"|logs/[A-Za-z0-9][A-Za-z0-9._-]{0,200}\.steps\.jsonl"
    r"|telemetry/[A-Za-z0-9][A-Za-z0-9._-]{0,200}\.jsonl"
    r"|power/L[12]\.csv"
    r"|notary/[0-9]{1,6}\.answers\.jsonl"
    r"|weights/[0-9]{1,9}(?:\.spot)?\.safetensors)"
)
"""Everything that a package may hold: no other name is unpacked, so none can lead out of the folder."""
MOST_FILES = 100_000
"""Most files of an archive: a run of a thousand nodes has a few thousand logs."""
LEAST_LIMIT = 256 << 20
"""Bytes that any archive may grow to, however small it is."""
LARGEST_GROWTH = 60
"""Times the size of the archive. A journal shrinks to a tenth of its size; a bomb, to a thousandth."""
LARGEST_WEIGHTS_GROWTH = 4
"""Times the size of the archive, for a file of weights: it is read in whole, and hardly shrinks."""
LEAST_JSON = 4 << 20
"""Bytes that a file of JSON may always have, however small the archive is."""
LARGEST_JSON_GROWTH = 16
"""Times the size of the archive, and `LEAST_JSON` at the least, for a file of JSON: it is parsed in whole,
and half of a manifest is checksums, which do not shrink."""
LARGEST_HEADER = 64 << 10
"""Bytes of a header of tar that is more than its one block; our own have less than one thousand."""
LARGEST_BYTES = 64 << 30
"""Most bytes that any archive may grow to."""
BLOCK_BYTES = 1 << 20
"""Bytes that are copied at a time."""

HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
"""Types of headers whose content tarfile reads into memory."""


@frozen
class PackageFiles:
    """The files of an unpacked submission."""

    folder: Path

    @property
    def manifest(self) -> Path:
        """The file with the contact, the licence, the runs, and the checksums of all other files."""
        return self.folder / "manifest.json"

    @property
    def seal(self) -> Path:
        """The file with the hash of the manifest and, if there is one, the signature."""
        return self.folder / "seal.json"

    @property
    def system(self) -> Path:
        """The file with the description of the system."""
        return self.folder / "system.json"

    def run(self, name: str) -> RunFiles:
        """The files of the run of this name."""
        return RunFiles(self.folder / "runs" / name)

    def held(self) -> dict[str, Path]:
        """All files by the names that they have in the archive."""
        found = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return {path.relative_to(self.folder).as_posix(): path for path in found}


class ArchiveError(AiperfError):
    """The file is not an archive of a submission, or is a hostile one."""


def write_archive(path: Path, files: Mapping[str, Path]) -> None:
    """A gzip'ed tar of these files by name, without times and owners: equal contents, equal bytes.

    Raises ArchiveError where it cannot be written, would be refused by `read_archive`, or something of that
    name exists.
    """
    refuse_existing(path)
    for name in files:
        if NAME.fullmatch(name) is None:
            raise ArchiveError(f"{name!r:.120} has a name that is not allowed in a package; rename the file")
    partial = path.with_name(f"{path.name}.part")
    try:
        _write(partial, files)
        refuse_existing(path)  # the work took a while
        partial.replace(path)
    except OSError as error:
        raise ArchiveError(unwritable(error, error.filename or path)) from None
    finally:
        partial.unlink(missing_ok=True)


def refuse_existing(path: Path) -> None:
    """Even for what would be the same: a package that was sent somewhere is not replaced by another."""
    if os.path.lexists(path):
        raise ArchiveError(f"{path} already exists; remove it, or give another file with -o")


def read_archive(path: Path, folder: Path) -> list[str]:
    """Unpacks into an empty folder; gives the names of the files. Raises ArchiveError, which says why not."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for
            raise ArchiveError(f"{path} is not a file")
        limit = min(LARGEST_BYTES, max(LEAST_LIMIT, LARGEST_GROWTH * status.st_size))
        with (
            opened(path) as raw,  # a file of the system may be regular, and be waited for
            gzip.GzipFile(fileobj=raw) as packed,
            # As a stream: what lies behind the bound is never unpacked, headers included.
            tarfile.open(fileobj=_Bounded(packed, limit, path), mode="r|", tarinfo=_Member) as tar,
        ):
            names = list(_unpacked(tar, folder, path))
            _refuse_more(packed, path)
            return names
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, UnicodeError, ValueError) as error:
        if RunFiles(path.parent).journal.is_file():
            raise ArchiveError(f"{path} is one file of a run; give the run directory {path.parent}") from None
        raise ArchiveError(
            f"{path} is not a gzip-compressed tar archive, or is damaged: {error}; give a run directory or a "
            f"package"
        ) from None
    except _LargeHeader as error:
        raise ArchiveError(f"{path} contains {error}; it is not unpacked") from None
    except RecursionError:  # tarfile calls itself for each header that stands before another
        raise ArchiveError(f"{path} contains endlessly nested headers; it is not unpacked") from None
    except OSError as error:
        raise ArchiveError(unreadable(error, error.filename or path, "give a package")) from None


def _write(path: Path, files: Mapping[str, Path]) -> None:
    """Writes the archive by sorted names, without what depends on the time or the user."""
    with (
        path.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in sorted(files):
            member = tarfile.TarInfo(name)
            member.size, member.mode = files[name].stat().st_size, 0o644
            with files[name].open("rb") as file:
                tar.addfile(member, file)


class _LargeHeader(Exception):
    """A header of tar that is too large to be read."""


class _Member(tarfile.TarInfo):
    """A member of an archive whose headers are bounded before they are read."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        """A header that stands before another is held in whole by tarfile, several times over."""
        found = super().frombuf(buf, encoding, errors)
        if found.type in HEADERS and found.size > LARGEST_HEADER:
            raise _LargeHeader(f"a header of {found.size:,} bytes")
        return found


class _Bounded(io.RawIOBase):
    """Reads a stream until it has grown too large."""

    def __init__(self, stream: gzip.GzipFile, limit: int, path: Path) -> None:
        super().__init__()
        self.stream, self.limit, self.path = stream, limit, path
        self.total = 0

    def read(self, size: int = -1) -> bytes:
        """The next bytes, as tarfile asks for them. Raises ArchiveError once the stream is larger than
        allowed."""
        data = self.stream.read(size)
        self.total += len(data)
        if self.total > self.limit:
            raise ArchiveError(f"{self.path} grows to more than {self.limit >> 20:,} MiB; it is not unpacked")
        return data


def _unpacked(tar: tarfile.TarFile, folder: Path, path: Path) -> Iterator[str]:
    """Copies one member after the other into the folder, and yields its name. Raises ArchiveError at the
    first that a package may not hold."""
    size = path.stat().st_size
    limits = {
        ".safetensors": max(LEAST_LIMIT, LARGEST_WEIGHTS_GROWTH * size),
        ".json": max(LEAST_JSON, LARGEST_JSON_GROWTH * size),
    }
    names = set[str]()
    for member in tar:
        if not member.isreg():
            raise ArchiveError(
                f"{path} contains {member.name!r:.120}, which is not a plain file; it is not unpacked"
            )
        if NAME.fullmatch(member.name) is None:
            raise ArchiveError(
                f"{path} contains {member.name!r:.120}, which is not allowed in a package; it is not unpacked"
            )
        if member.name in names:
            raise ArchiveError(f"{path} contains {member.name} twice")
        names.add(member.name)
        if len(names) > MOST_FILES:
            raise ArchiveError(f"{path} contains more than {MOST_FILES:,} files; it is not unpacked")
        if member.size > limits.get(Path(member.name).suffix, LARGEST_BYTES):
            raise ArchiveError(f"{path} contains {member.name} of {member.size:,} bytes; it is not unpacked")
        if member.issparse():
            raise ArchiveError(f"{path} contains {member.name} as a sparse file; it is not unpacked")
        _copy(tar, member, folder / member.name)
        yield member.name


def _refuse_more(packed: gzip.GzipFile, path: Path) -> None:
    """A damaged header looks like the end: behind it there may be nothing but the tar's padding."""
    left = LEAST_LIMIT
    while rest := packed.read(BLOCK_BYTES):
        left -= len(rest)
        if rest.strip(b"\0") or left < 0:
            raise ArchiveError(f"{path} is damaged: there is data after its last file")


def _copy(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    """Writes a member in blocks, into a file that must not exist yet."""
    source = tar.extractfile(member)
    assert source is not None, "it is a plain file"
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as file:
        while block := source.read(BLOCK_BYTES):
            file.write(block)
