"""What is said of an error of the operating system: where, what, and a remedy that fits the cause."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from aiperf.os_error import naming, refused, unreadable, unwritable
from tests.tables import ComesTo


def error(number: int, path: str = "") -> OSError:
    return OSError(number, os.strerror(number), *([path] if path else []))


def test_the_remedy_fits_the_cause(comes_to_what_was_read: ComesTo) -> None:
    def remedies(number: int) -> tuple[str, str]:
        """Where a file cannot be read, and where it cannot be written."""
        what = os.strerror(number)
        read = unreadable(error(number), "/a/b", "get it")
        written = unwritable(error(number, "/a/b"), None, "put it elsewhere")
        return read.removeprefix(f"/a/b: {what}; "), written.removeprefix(f"/a/b cannot be written: {what}; ")

    comes_to_what_was_read("os_errors.txt", {**vars(errno), "remedies": remedies})


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
