"""What is said of an error of the operating system: where, what, and a remedy that fits the cause."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from aiperf.os_error import naming, refused, unreadable, unwritable

LIMIT = "raise the limit on open files of a process (ulimit -n)"
SERVER = "the file server failed: check that the file system is mounted here, then try again"


def error(number: int, path: str = "") -> OSError:
    return OSError(number, os.strerror(number), *([path] if path else []))


@pytest.mark.parametrize(
    ("number", "read", "written"),
    [
        (errno.EMFILE, LIMIT, LIMIT),
        (errno.ESTALE, SERVER, SERVER),
        (errno.EACCES, "make it readable", "choose a directory that you may write to"),
        (errno.EROFS, "get it", "choose a directory on a file system that is not read-only"),
        (errno.ENOSPC, "get it", "free some space on this file system"),
        (errno.EDQUOT, "get it", "remove some of your own files, or have your quota raised"),
        (errno.EFBIG, "get it", "raise the limit on the size of a file (ulimit -f)"),
        (errno.ENOENT, "get it", "put it elsewhere"),
    ],
)
def test_the_remedy_fits_the_cause(number: int, read: str, written: str) -> None:
    what = os.strerror(number)
    assert unreadable(error(number), "/a/b", "get it") == f"/a/b: {what}; {read}"
    assert unwritable(error(number, "/a/b"), None, "put it elsewhere") == (
        f"/a/b cannot be written: {what}; {written}"
    )


def test_what_bars_the_way_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link to nothing, and a folder that may not be entered: to make the file readable would not help."""
    (link := tmp_path / "link").symlink_to("gone")
    told = f"{link}: is a link to gone, which does not exist; restore that or remove the link"
    assert unreadable(error(errno.ENOENT, str(link))) == told
    (tmp_path / "shut").mkdir()
    path = tmp_path / "shut" / "file"
    monkeypatch.setattr(os, "access", lambda folder, mode: Path(folder).name != "shut")
    told = f"{path}: Permission denied; make the folder {tmp_path}/shut accessible (chmod u+rx)"
    assert unreadable(error(errno.EACCES), path) == told


def test_an_error_of_writing_names_the_file() -> None:
    full = Path("/dev/full")
    with pytest.raises(OSError, match="No space") as raised, naming(full), full.open("wb", 0) as file:
        file.write(b"a")
    assert refused(raised.value) == (
        "/dev/full: No space left on device; free some space on this file system"
    )
    assert refused(OSError("no number")) == "no number"
