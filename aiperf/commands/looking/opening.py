"""The argument of commands that show a run: its directory, or a package of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiperf.commands.extras import extra
from aiperf.errors import AiperfError
from aiperf.files import RunFiles


@contextmanager
def opened(path: Path) -> Iterator[RunFiles]:
    """A context with the files of a run directory, or of a package, which is unpacked for its duration after
    its checksums are checked."""
    if not (path.exists() or path.parent.is_file()):
        raise AiperfError(f"{path} does not exist; give a run directory or a package")
    if path.is_dir() or not (path.is_file() or path.parent.is_file()):
        yield RunFiles(path)
        return
    with extra("report"):
        from analysis.submissions.unpacking import opened_run
    with opened_run(path) as files:
        yield files
