"""Numbers that no column holds and keys that stand twice are refused, wherever they stand."""

from __future__ import annotations

import json

import pytest

from aiperf.journal.strict import LARGEST, parsed

PLACES = (
    "{}",
    "[{}]",
    "[1,{}]",
    '{{"a":{}}}',
    '{{"a": {}}}',
    '{{"a":\n{}}}',
    '{{"a":[0.5,{}]}}',
    '{{"a":\t{}}}',
)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "number",
    [
        *("1e400", "-1e400", "1E+309", "1.5e999", "9" * 400 + ".0", "1" + "0" * 320 + "e0", "1.1e150"),
        *(str(LARGEST + 1), str(-LARGEST - 1), "9" * 30, "NaN", "Infinity", "-Infinity"),
    ],
)
def test_what_is_too_large_or_no_number_is_refused(number: str, place: str) -> None:
    with pytest.raises(ValueError, match=r"too large|not a number"):
        parsed(place.format(number).encode())


@pytest.mark.parametrize("text", ['{"a":1,"a":1}', '{"b":[{"a":1,"c":2,"a":3}]}'])
def test_a_key_stands_once(text: str) -> None:
    with pytest.raises(ValueError, match="a appears twice"):
        parsed(text.encode())


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("number", ["0", "-1", "1e3", "1.25e-300", "1e-400", "1e150", "0.6018240000000001"])
def test_all_other_numbers_are_what_they_say(number: str, place: str) -> None:
    assert parsed(place.format(number).encode()) == json.loads(place.format(number))
