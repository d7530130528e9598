"""Files that a user named: runs and packages to be read, results to be written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiperf.commands.optional_libraries import extra
from aiperf.errors import AiperfError
from aiperf.journal.run_files import RUNS, RunFiles
from aiperf.os_error import unreadable, unwritable


@contextmanager
def reading(path: Path, remedy: str) -> Iterator[None]:
    """A context for reading a file. Raises AiperfError if the system refuses; `remedy` is what to do if the
    cause lies in the file itself."""
    try:
        yield
    except OSError as error:
        raise AiperfError(unreadable(error, path, remedy)) from None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A context for writing a file. Raises AiperfError if the system refuses."""
    try:
        yield
    except OSError as error:
        raise AiperfError(unwritable(error, path, "choose another path")) from None


def write_file(path: Path, content: str | bytes) -> Path:
    """Writes a file and returns its path; text is written as UTF-8. Raises AiperfError if the system
    refuses."""
    with writing(path):
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def no_run(path: Path) -> str:
    """Says of a path that is neither a directory nor a file what to give instead."""
    if path.exists():
        return f"{path} is neither a directory nor a file; give a run directory or a package"
    among = RUNS / path
    remedy = f"did you mean {among}?" if among.exists() else "give a run directory or a package"
    return f"{path} does not exist; {remedy}"


@contextmanager
def opened(path: Path) -> Iterator[RunFiles]:
    """A context with the files of a run directory, or of a package, which is unpacked for its duration after
    its checksums are checked."""
    if path.is_dir():
        yield RunFiles(path)
        return
    if not (path.is_file() or path.parent.is_file()):
        raise AiperfError(no_run(path))
    with extra("report"):
        from analysis.submissions.unpacking import opened_run
    with opened_run(path) as files:
        yield files
