"""Figures as people read them."""

from __future__ import annotations

import random

import pytest

from aiperf.wire.trial import HyperParameters, Trial, origin
from aiperf.wording import (
    clock,
    duration,
    figure,
    kilowatt_hours,
    moment,
    percent,
    plain,
    rates,
    spoken,
)
from nas.morphisms import Morphism, WidenTrunk
from nas.seeds import residual


def test_a_figure_has_no_exponent() -> None:
    figures = {19187.25: "19,187", 2381.9: "2,382", 3.53285: "3.533", 0.00012345: "0.0001234", 0: "0"}
    assert {value: figure(value) for value in figures} == figures


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [
        (0.00018, 1, "0.018 %"),
        (0.0099999, 1, "1.0 %"),
        (0.074, 0, "7.4 %"),
        (0.412, 0, "41 %"),
        (-0.0003, 1, "-0.030 %"),
        (1e-9, 2, "1.0 × 10⁻⁷ %"),
        (0.0, 1, "0.0 %"),
        (0.0425, 2, "4.25 %"),
        (None, 1, "unknown"),
    ],
)
def test_a_share_has_two_digits_that_matter(share: float | None, digits: int, text: str) -> None:
    assert percent(share, digits) == text


def test_a_duration_names_its_unit() -> None:
    texts = {1: "1 second", 0.5: "0.5 seconds", 119: "119 seconds", 119.97: "2 minutes", 7272: "2.02 hours"}
    assert {seconds: duration(seconds) for seconds in texts} == texts


def test_energy_is_in_what_is_paid_for() -> None:
    assert [kilowatt_hours(3.6e6), kilowatt_hours(1.8e5)] == ["1 kWh", "0.05 kWh"]


def test_no_number_fills_a_page() -> None:
    assert [figure(1e300), percent(1e300), clock(1e300)] == ["1e+300", "1e+302 %", "1e+300 s"]
    assert [figure(-1e300), percent(-1e300), clock(-1e300)] == ["-1e+300", "-1e+302 %", "0:00"]


def test_a_name_turns_nothing_and_can_be_written() -> None:
    assert plain("a\x1b[31m\u202eb\u061cc\ud800\n") == "a\ufffd[31m\ufffdb\ufffdc\ufffd "


def test_an_interval_has_its_unit_once() -> None:
    assert rates(113.5e9, 115.6e9) == "113.5 to 115.6 GOPS"
    assert rates(999.9e9, 1.2e12) == "999.9 GOPS to 1.200 TOPS"


def test_a_time_of_day_is_spoken_and_nothing_else_is_touched() -> None:
    assert moment("2026-05-04T08:00:00+00:00") == "4 May 2026, 08:00 UTC"
    assert moment("2026-05-04T08:00:00+02:00") == "4 May 2026, 08:00"
    assert moment("<b>now</b>") == "<b>now</b>"


def test_a_class_is_spoken_in_words() -> None:
    assert spoken("WidenTrunkByCopies") == "widen trunk by copies"


@pytest.mark.parametrize(
    ("parent", "morphisms", "text"),
    [
        (None, (), "the seed"),
        (4, (), "4, trained on"),
        (4, (WidenTrunk,), "child of 4: widen trunk"),
        (None, (WidenTrunk,), "child of the seed: widen trunk"),
    ],
)
def test_where_an_architecture_comes_from(
    parent: int | None, morphisms: tuple[type[Morphism], ...], text: str
) -> None:
    edits = tuple(kind.propose(residual(), random.Random(1)) for kind in morphisms)
    assert origin(Trial(7, parent, edits, HyperParameters(0.1, 8), 1, 1, 1)) == text
