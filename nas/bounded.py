"""Files of unknown origin: only regular files and pipes are opened, and a bounded part of them is held.

A refusal is an OSError with its reason in `strerror`, as one of the system.
"""

from __future__ import annotations

import errno
import os
import select
import stat
from collections.abc import Iterable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

LARGEST_BYTES = 4 << 20
"""Largest file that is read whole; parsed, it takes up to fifty times as much memory."""
LONGEST_LINE = 4 << 20
"""Longest line in bytes, four times what the ranks of the largest machine take."""
PIPE_SECONDS = 10.0
"""Longest wait for the next bytes of a pipe, as in
`aiperf-hpc graph RUN 7 | aiperf-hpc count --seed /dev/stdin`."""
BLOCK_BYTES = 1 << 20
"""Bytes read at once, and about the size of a block of lines."""


_KINDS = {
    stat.S_IFDIR: "it is a directory",
    stat.S_IFIFO: "it is a pipe",
    stat.S_IFSOCK: "it is a socket",
    stat.S_IFCHR: "it is a device",
    stat.S_IFBLK: "it is a device",
}
"""What a path is instead of a file, by the kind in its mode."""


def opened(path: Path) -> BinaryIO:
    """A file to be read in pieces. Raises OSError also for what is not a regular file."""
    return os.fdopen(_opened(path, stat.S_IFREG), "rb")


def lines(file: BinaryIO, longest: int = LONGEST_LINE) -> Iterator[bytes]:
    """Lines with their ends; a longer line comes in pieces of `longest` + 1 bytes."""
    return iter(partial(file.readline, longest + 1), b"")


def in_blocks(raws: Iterable[bytes]) -> Iterator[list[bytes]]:
    """The lines, as many at a time as have BLOCK_BYTES together."""
    block, size = list[bytes](), 0
    for raw in raws:
        block.append(raw)
        size += len(raw)
        if size >= BLOCK_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block


def read_bytes(path: Path, most: int = LARGEST_BYTES) -> bytes:
    """A small file, or what comes through a pipe. Raises OSError also for anything else or larger."""
    file = _opened(path, stat.S_IFREG, stat.S_IFIFO)
    content = bytearray()
    try:
        size, is_pipe = os.fstat(file).st_size, stat.S_ISFIFO(os.fstat(file).st_mode)
        if size > most:
            raise _refused(path, f"it has {size:,} bytes; the limit is {most:,}")
        while piece := _next(path, file, is_pipe):
            content += piece
            if len(content) > most:
                raise _refused(path, f"it has more than {most:,} bytes, the limit")
    finally:
        os.close(file)
    return bytes(content)


def read_text(path: Path, most: int = LARGEST_BYTES) -> str:
    """As `read_bytes`. Raises OSError also for what is not UTF-8."""
    try:
        return read_bytes(path, most).decode()
    except UnicodeDecodeError as error:
        raise _refused(path, f"byte {error.start} is not valid UTF-8") from None


def system_text(path: Path) -> str:
    """The text of a file of the kernel, of a driver or of the system, which another system does not have and
    a container may hide; empty then."""
    try:
        return read_bytes(path).decode(errors="replace")
    except OSError:
        return ""


def file_digest(path: Path) -> str:
    """SHA-256 of a file of any size, as hexadecimal text. Raises OSError."""
    total = sha256()
    with opened(path) as file:
        while block := file.read(BLOCK_BYTES):
            total.update(block)
    return total.hexdigest()


def _opened(path: Path, *kinds: int) -> int:
    """Opens a file after a look at its kind: merely to open a pipe can wait for ever, and to open a device
    can have an effect."""
    _refuse_other(path, path.stat(), kinds)
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _refuse_other(path, os.fstat(file), kinds)  # another one may have been put there meanwhile
    except OSError:
        os.close(file)
        raise
    return file


def _refuse_other(path: Path, found: os.stat_result, kinds: tuple[int, ...]) -> None:
    """Raises OSError if a file is of none of these kinds."""
    kind = stat.S_IFMT(found.st_mode)
    if kind not in kinds:
        raise _refused(path, f"{_KINDS.get(kind, 'it is something else')}, not a file")


def _next(path: Path, file: int, is_pipe: bool) -> bytes:
    """The next block; empty at the end. A pipe whose writer is silent is not waited for without end."""
    if is_pipe and not select.select([file], [], [], PIPE_SECONDS)[0]:
        raise _refused(path, f"nothing was read from this pipe in {PIPE_SECONDS:g} s")
    return os.read(file, BLOCK_BYTES)


def _refused(path: Path, why: str) -> OSError:
    """The error for a file that is refused, in the form of an error of the system."""
    return OSError(errno.EINVAL, why, str(path))
