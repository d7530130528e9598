"""Figures as people read them."""

from __future__ import annotations

import pytest

from analysis.wording import figure, moment, spoken


@pytest.mark.parametrize(
    ("value", "text"),
    [(19187.25, "19,187"), (2381.9, "2,382"), (3.53285, "3.533"), (0.00012345, "0.0001234"), (0, "0")],
)
def test_a_figure_has_no_exponent(value: float, text: str) -> None:
    assert figure(value) == text


@pytest.mark.parametrize(
    ("iso", "text"),
    [
        ("2026-05-04T08:00:00+00:00", "4 May 2026, 08:00 UTC"),
        ("2026-05-04T08:00:00+02:00", "4 May 2026, 08:00"),
        ("<b>now</b>", "<b>now</b>"),
    ],
)
def test_a_time_of_day_is_spoken_and_nothing_else_is_touched(iso: str, text: str) -> None:
    assert moment(iso) == text


def test_a_class_is_spoken_in_words() -> None:
    assert spoken("WidenTrunkByCopies") == "widen trunk by copies"
