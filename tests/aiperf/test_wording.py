"""Times, figures and errors of the operating system, as they are written and as people read them."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiperf import wording
from aiperf.clock import duration, moment
from aiperf.os_error import naming, refused, unreadable, unwritable
from aiperf.wire.trial import HyperParameters, Trial, origin
from nas import morphisms
from nas.morphisms import Morphism
from nas.seeds import residual
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


# Figures


def comes_from(parent: int | None, *kinds: type[Morphism]) -> str:
    """An architecture with a parent, or the seed, and an edit of each of these kinds."""
    edits = tuple(kind.propose(residual(), random.Random(1)) for kind in kinds)
    return origin(Trial(7, parent, edits, HyperParameters(0.1, 8), 1, 1, 1))


def test_what_people_read(comes_to_what_was_read: ComesTo) -> None:
    """A figure has no exponent unless it would fill a page, a share two digits that matter, a duration and an
    interval their unit once."""
    names = {**vars(wording), **vars(morphisms), "comes_from": comes_from}
    comes_to_what_was_read("wording.txt", names)


# Times, as a journal writes them: short, in order, and no work shorter than it was


SECONDS = st.floats(1e-9, 1e7)


@given(SECONDS, SECONDS)
def test_moments_stay_in_order_and_are_short(one: float, other: float) -> None:
    assert moment(min(one, other)) <= moment(max(one, other))
    assert abs(moment(one) - one) <= 0.5000001e-6 + one * 1e-15
    assert moment(moment(one)) == moment(one)
    assert round(moment(one), 6) == moment(one)


@given(SECONDS)
def test_work_is_not_made_shorter_nor_nothing(seconds: float) -> None:
    written = duration(seconds)
    assert written > 0
    assert seconds * (1 - 1e-15) <= written <= seconds + 1.0001e-6
    assert round(written, 6) == written


@given(st.lists(SECONDS.map(duration), max_size=50))
def test_a_sum_of_durations_is_written_as_their_sum(each: list[float]) -> None:
    assert abs(moment(sum(each)) - sum(each)) <= sum(each) * 1e-14
