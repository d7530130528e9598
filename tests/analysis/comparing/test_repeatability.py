"""Repeated runs: what is shown of them, whole; by which cause they differ; what is refused."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from math import sqrt
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiperf.errors import AiperfError
from aiperf.journal.events import Began, CeilingMeasured, ControlMeasured, LegEnded, Origin
from aiperf.journal.run_files import RunFiles
from analysis.comparing.repeatability import (
    FIGURES,
    Repeat,
    RepeatedRuns,
    _choices,
    _interval,
    causes,
    largest_by_chance,
    spread,
    unfit,
    varied,
)
from analysis.comparing.repeatability_text import read_spread, spread_json, spread_text
from analysis.readings.judgement import Judged, examine
from tests.aiperf.rules.forged import Edit, each, said, together
from tests.journals import CIFAR, Machine, Scene, of_origin, resized, told, write_run
from tests.tables import ComesTo

ONE, TWO = "bf16, 1 thread, fused steps", "bf16, 2 threads, fused steps"


def repeat(
    name: str, seed: int, choices: str, gops: float, error: float = 0.05, control: float | None = 44.0
) -> Repeat:
    ceiling = 212e9 if choices == ONE else 438e9
    values = (1e9 * gops, 3e9 * gops, control, ceiling, error)
    return Repeat(name, seed, choices, dict(zip(FIGURES, values, strict=True)))


SEVEN = RepeatedRuns(
    preset="digits",
    minutes=1.0,
    machine="1 × AMD EPYC on 1 host",
    devices=1,
    origin=Origin.MEASURED,
    control="images/s, ResNet-50 v1.5 at 32²",
    runs=(
        repeat("a", 1, ONE, 74.5, 0.036),
        repeat("b", 1, ONE, 80.4, 0.036, 49.4),
        repeat("c", 1, TWO, 71.5, 0.070),
        repeat("d", 2, TWO, 52.7, 0.027, None),
        repeat("e", 3, TWO, 81.2, 0.041),
        repeat("f", 4, TWO, 55.7, 0.046),
        replace(repeat("g", 5, TWO, 96.9, 0.043), disturbed=0.012, unsteady=0.031),
    ),
)
SHORT = Scene(groups=1, minutes=0.1, epochs=10)
RECORDED = Path(__file__).parents[2] / "recorded"


def test_everything_that_is_shown_is_as_it_was_read(as_it_was_read: Callable[[str, str], None]) -> None:
    control = "which the runs have at no size in common"
    alone = replace(SEVEN, runs=SEVEN.runs[3:5], origin=Origin.PRETENDED, control=control)
    as_it_was_read(spread_text(SEVEN) + "\n" + spread_text(alone), "spread.txt")


def test_what_is_written_is_read_again_and_holds_what_is_shown() -> None:
    text = spread_json(SEVEN)
    assert read_spread(text.encode(), "spread.json") == SEVEN
    record = json.loads(text)
    values = [run.figures["ops_per_second"] for run in SEVEN.runs]
    shown = record["figures"]["ops_per_second"]
    assert (shown["median"], shown["least"], shown["greatest"]) == (74.5e9, 52.7e9, 96.9e9)
    deviation = statistics.stdev([value or 0.0 for value in values])
    assert shown["variation"] == pytest.approx(deviation / statistics.fmean(value or 0.0 for value in values))
    pairs = [(cause["runs"], cause["pairs"]) for cause in record["causes"]]
    assert pairs == [(2, 1), (5, 10), (3, 2), (6, 8)]


def test_another_file_is_refused_in_one_line(comes_to_what_was_read: ComesTo) -> None:
    names = {
        "read": lambda content: read_spread(content, "spread.json"),
        "spread_json": spread_json,
        "json": json,
    }
    comes_to_what_was_read("refused_spreads.txt", {**globals(), **names})


@given(st.lists(st.floats(1.0, 1e3), min_size=2, max_size=8), st.booleans())
def test_a_cause_of_all_pairs_is_the_variation_of_the_sample(values: list[float], is_one_seed: bool) -> None:
    runs = tuple(repeat(str(n), 1 if is_one_seed else n, ONE, value) for n, value in enumerate(values))
    found = replace(SEVEN, runs=runs)
    (cause,) = [each for each in causes(found) if each.pairs]
    assert cause.name == ("the same seed and choices" if is_one_seed else "other seeds, the same choices")
    expected = statistics.stdev(values) / statistics.fmean(values)
    assert cause.variations["ops_per_second"] == pytest.approx(expected, abs=1e-12)
    assert varied(found, "ops_per_second").variation == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("num", "outside"), [(2, 0), (5, 0), (6, 0), (8, 0), (9, 1), (10, 1), (12, 2)])
def test_the_interval_covers_the_median_as_often_as_it_says(num: int, outside: int) -> None:
    """Each value is below the median or above it: all 2^n cases."""
    covered = sum(outside < sum(below) < num - outside for below in product((0, 1), repeat=num))
    assert _interval(num) == (outside, pytest.approx(covered / 2**num))


@pytest.mark.parametrize(
    ("num", "quantile"), [(2, 12.706), (3, 4.303), (11, 2.228), (12, 2.201), (31, 2.042)]
)
def test_a_difference_by_chance_follows_students_t(num: int, quantile: float) -> None:
    values = [70.0 + n for n in range(num)]
    found = replace(SEVEN, runs=tuple(repeat(str(n), n, ONE, value) for n, value in enumerate(values)))
    variation = statistics.stdev(values) / statistics.fmean(values)
    assert largest_by_chance(found) == pytest.approx(quantile * sqrt(2) * variation, rel=2e-3)


def made(directory: Path, seed: int, *changes: Edit, format_: str = "bf16", groups: int = 1) -> Judged:
    settings = (("random_seed", seed), ("training.step", "auto"), ("training.format", format_))
    lines = told(Scene(groups=groups, minutes=0.1, epochs=10, changes=settings))
    alone = said(CeilingMeasured, format=format_), said(Began, chosen="no other engine can be used")
    return examine(write_run(directory, together(*alone, *changes)(lines)))


def test_the_journal_says_what_was_chosen_and_at_which_size(
    tmp_path: Path, as_it_was_read: Callable[[str, str], None]
) -> None:
    """The later run has another engine, and the control of smaller images."""
    slower = together(said(ControlMeasured, size=112), said(Began, engine="fused"))
    later, first = made(tmp_path / "later", 2, slower), made(tmp_path / "first", 1)
    spreads = spread([later, first]), spread([first, made(tmp_path / "again", 3)])
    as_it_was_read("\n".join(map(spread_text, spreads)), "chosen.txt")
    assert _choices(examine(RunFiles(RECORDED / "groups"))) == "fp32, 1 thread, eager steps, 2 legs"


def test_only_whole_runs_of_one_configuration_make_a_spread(
    tmp_path: Path, comes_to_what_was_read: ComesTo
) -> None:
    first = made(tmp_path / "first", 1)
    format_ = made(tmp_path / "format", 2, format_="fp16")
    assert {run.choices[:4] for run in spread([first, format_]).runs} == {"bf16", "fp16"}
    half = examine(write_run(tmp_path / "half", told(SHORT)[:40]))
    assert unfit(half).startswith("INCOMPLETE: the run is in progress, or was killed")
    cut = made(tmp_path / "cut", 2, each(LegEnded, lambda event: replace(event, reason="interrupted")))
    two = made(tmp_path / "two", 2, groups=2)
    other = examine(write_run(tmp_path / "other", resized(CIFAR, 0.1), Machine(groups=1)))
    played = examine(write_run(tmp_path / "played", of_origin(told(SHORT), Origin.SIMULATED)))

    def refused(*runs: Judged) -> None:
        try:
            spread(runs)
        except AiperfError as error:
            raise AiperfError(re.sub(r"/\S*/|\d+(?= more differ)", "", str(error))) from None

    comes_to_what_was_read("refused_repeats.txt", {**locals(), "refused": refused})
