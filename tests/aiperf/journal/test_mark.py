"""The words that mark what was not measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiperf.errors import AiperfError
from aiperf.journal.events import Origin
from aiperf.journal.mark import mark_of, marked, refuse_marked

UNMEASURED = [origin for origin in Origin if origin is not Origin.MEASURED]


@pytest.mark.parametrize("origin", UNMEASURED)
def test_every_origin_but_one_has_a_mark(origin: Origin) -> None:
    mark = mark_of(origin)
    assert mark is not None
    assert marked("sustained OPS", mark) == f"sustained OPS, {origin.value}"
    assert mark.line.startswith(f"{origin.value.upper()}: no network was trained")
    with pytest.raises(AiperfError, match=f"^x cannot be sold: the run is {origin.value}: no network"):
        refuse_marked(origin, Path("x"), "be sold")


def test_what_was_measured_has_none() -> None:
    assert mark_of(Origin.MEASURED) is None
    assert marked("sustained OPS", None) == "sustained OPS"
    refuse_marked(Origin.MEASURED, Path("x"), "be sold")
