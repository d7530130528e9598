"""Every figure: well-formed, light, coloured by variables, asked by a pointer, and said in words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from aiperf.journal.run_files import RunFiles
from analysis.pages.figures.picture import (
    COLOURS,
    NARROW,
    WIDE,
    Picture,
    RoundTicks,
    error_axis,
    round_text,
    zero_place,
)
from analysis.pages.figures.progress import error_over_time, throughput
from analysis.pages.figures.svg import Inline, inline, write_files
from analysis.pages.figures.trial_dots import name_trials, names_of
from analysis.pages.report import pictures, report_html
from analysis.readings.disturbance import OthersOverTime
from analysis.readings.judgement import Judged, examine
from analysis.readings.progress import progress
from analysis.readings.trial_rows import rows
from tests.tables import ComesTo

NAMES = (
    *("throughput", "error", "regulated", "lineage", "pareto", "characterisation"),
    *("groups", "time", "architecture", "layers"),
)
NO_FIGURE = {"", "none", "unknown", "no"}


@pytest.fixture(scope="module")
def found(judged: Judged) -> dict[str, Picture]:
    return {one.name: one for _, one in pictures(judged, rows(judged.replay, judged.recount.counts))}


@pytest.fixture(scope="module")
def drawn(found: dict[str, Picture]) -> dict[str, Inline]:
    return {name: inline(picture) for name, picture in found.items()}


def both(drawn: Inline) -> Iterator[str]:
    yield drawn.wide
    yield drawn.narrow


def test_it_is_said_in_words_with_figures_and_its_table_sorts_by_them(found: dict[str, Picture]) -> None:
    """1.5 TOPS is more than 900 GOPS, and 10:00 comes after 2:00: what is worded is not what is sorted by."""
    assert tuple(found) == NAMES
    for picture in found.values():
        assert re.search(r"\d.*\.$", picture.says)
        table = picture.table
        assert table is not None
        assert table.rows
        for place, row in enumerate(table.rows):
            assert len(row) == len(table.columns) == len(table.figures)
            for column, cell in enumerate(row):
                key = table.keys[place][column] if table.keys else None
                plain = re.fullmatch(r"-?[\d,]+(\.\d+)?", cell) or cell in NO_FIGURE
                assert not table.figures[column] or isinstance(key, (int, float)) or plain, (cell, key)


def test_the_best_error_is_said_by_its_falls(judged: Judged) -> None:
    """One validation is no fall."""
    so_far = progress(judged.replay, judged.score)
    for num, said in ((1, "is "), (2, "fell in 1 step from "), (3, "fell in 2 steps from ")):
        falls = {name: getattr(so_far, name)[:num] for name in ("best_from", "best", "best_trials")}
        words = error_over_time(replace(so_far, **falls), judged.score).says
        assert words.startswith(f"The best validation error {said}")


def test_what_has_nothing_to_draw_is_said_in_words_alone(run: RunFiles, tmp_path: Path) -> None:
    """No axis from 100 % to 1000 %, no 4e-10 OPS."""
    begun = RunFiles(tmp_path / "begun")
    begun.directory.mkdir()
    begun.journal.write_bytes(b"".join(run.journal.read_bytes().splitlines(keepends=True)[:10]))
    judged = examine(begun)
    found = [picture for _, picture in pictures(judged, rows(judged.replay, judged.recount.counts))]
    assert [picture.name for picture in found if not picture.empty] == []
    assert [write_files(picture, tmp_path) for picture in found] == [[]] * len(found)
    html = report_html(judged)
    for picture in found:
        assert f'<figure id="{picture.name}">' in html
    assert 'class="plot"' not in html


@pytest.mark.parametrize("name", NAMES)
def test_it_is_one_element_that_stands_alone_in_the_colours_of_the_page(
    drawn: dict[str, Inline], name: str
) -> None:
    for text in both(drawn[name]):
        root = ElementTree.fromstring(text.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))
        assert root.tag.endswith("svg")
        assert (root.get("role"), root.get("aria-labelledby")) == ("img", f"{name}-says")
        assert not re.search(r"https?:|<script|<style|<metadata|xlink", text)
        plain = re.sub(r'href="data:[^"]*"', "", text)
        assert set(re.findall(r"var\(--(\w+)\)", plain)) <= set(COLOURS)
        assert set(re.findall(r"#[0-9a-f]{6}\b", plain)) == set()


def ticks(low: float, high: float, most: int) -> list[float]:
    return [float(f"{tick:.9g}") for tick in RoundTicks(most).tick_values(low, high)]


def error_ticks(*errors: float) -> list[str]:
    """On an axis from the least to the greatest, on which zero has a tick of its own."""
    zero = zero_place(errors)
    assert (zero is None) == (min(errors) > 0)
    axes = Figure().subplots()
    axes.plot([max(error, zero or 0.0) for error in errors], "o")
    error_axis(axes, zero)
    axes.set_ylim(0.9 * (zero or min(errors)), 1.2 * (max(errors) or zero or 0.0))
    return [axes.yaxis.get_major_formatter()(tick) for tick in axes.yaxis.get_majorticklocs()]


def named(*numbers: int) -> dict[int, str]:
    """Names in a line of trials with these numbers, which begins with the seed."""
    line: list[Any] = [SimpleNamespace(number=number) for number in numbers]
    return names_of(line)


def test_ticks_of_a_logarithmic_axis_are_round_and_the_best_its_parent_and_the_seed_are_named(
    comes_to_what_was_read: ComesTo,
) -> None:
    """A round number has no zeros that say nothing."""
    comes_to_what_was_read("axes.txt", {**globals(), "round_text": round_text})


@pytest.mark.parametrize("second", [(50.0, 50.0), (51.0, 51.0), (55.0, 48.0), (2.0, 2.0), (99.0, 99.0)])
def test_names_of_trials_do_not_cover_one_another(second: tuple[float, float]) -> None:
    axes = Figure(figsize=(5, 4), dpi=72).subplots()
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 100)
    name_trials(axes, {0: "its parent", 1: "best"}, {0: (50.0, 50.0), 1: second}, NARROW)
    axes.get_figure().draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert [text.get_text() for text in axes.texts] == ["its parent", "best"]
    assert not boxes[0].overlaps(boxes[1])
    within = axes.get_window_extent()
    assert all(within.x0 <= box.x0 and box.x1 <= within.x1 for box in boxes)


def test_they_are_named_in_each_figure_of_trials(drawn: dict[str, Inline]) -> None:
    for name in ("lineage", "pareto", "characterisation"):
        for text in both(drawn[name]):
            named = re.findall(r">(best|its parent|seed|seed, its parent)</text>", text)
            assert named == ["seed, its parent", "best"]


def test_what_other_programs_used_is_drawn_below_the_throughput(judged: Judged) -> None:
    edges, most = np.array([0.0, 60.0, 180.0]), np.array([0.5, np.nan])
    others = OthersOverTime(edges, most, most / 2, hosts=3)
    told = [key.text for key in throughput(judged.score, others).legend]
    assert told[-2:] == [
        "CPU time that other programs used, on the host where it was most",
        "the median of the hosts",
    ]
    text = inline(throughput(judged.score, others)).wide
    assert all(f">{share} %</text>" in text for share in (0, 50, 100))
    alone = throughput(judged.score, replace(others, hosts=1))
    assert [key.text for key in alone.legend][-1] == "CPU time that other programs used"
    assert "other programs" not in str(throughput(judged.score).legend)


def test_names_inside_are_unique_in_the_page(drawn: dict[str, Inline]) -> None:
    texts = [text for one in drawn.values() for text in both(one)]
    ids = [name for text in texts for name in re.findall(r' id="([^"]+)"', text)]
    assert len(ids) == len(set(ids))
    for text in texts:
        referred = set(re.findall(r'(?:url\(#|href="#)([^")]+)', text))
        assert referred <= set(re.findall(r' id="([^"]+)"', text))


@pytest.mark.parametrize("name", NAMES)
def test_a_pointer_finds_its_marks(found: dict[str, Picture], drawn: dict[str, Inline], name: str) -> None:
    for marks, frame, text in (
        (drawn[name].wide_marks, found[name].wide, drawn[name].wide),
        (drawn[name].narrow_marks, NARROW, drawn[name].narrow),
    ):
        assert marks is not None
        assert len(marks.place) == len(marks.names) > 0
        box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text)
        assert box
        assert float(box.group(1)) == frame.width
        left, right, height = marks.place.T
        assert (left <= right + 1e-6).all()
        assert left.min() >= -1
        assert right.max() <= frame.width + 1
        assert height.min() >= -1
        assert height.max() <= float(box.group(2)) + 1
        labels = found[name].labels
        assert labels is None or max(marks.names) < len(labels)


def test_dots_and_marks_of_the_search_lie_on_one_another(drawn: dict[str, Inline]) -> None:
    """Each dot of the drawing is where a pointer is told that a trial is."""
    marks = drawn["lineage"].wide_marks
    assert marks is not None
    dots = [
        (float(x), float(y))
        for x, y in re.findall(r'<use href="#[^"]+" x="([\d.]+)" y="([\d.]+)"', drawn["lineage"].wide)
    ]
    places = {(round(x, 1), round(y, 1)) for x, _, y in marks.place}
    near = [any(abs(x - a) < 0.2 and abs(y - b) < 0.2 for a, b in places) for x, y in dots]
    assert sum(near) >= len(places)


@pytest.mark.parametrize("name", ["regulated", "lineage", "groups", "architecture"])
def test_figures_are_written_as_files(found: dict[str, Picture], name: str, tmp_path: Path) -> None:
    """Whoever sees one alone has its legend, whole, and whoever cannot see it has its words."""
    svg, png = write_files(found[name], tmp_path)
    assert (svg.name, png.name) == (f"{name}.svg", f"{name}.png")
    root = ElementTree.parse(svg).getroot()
    assert root.tag.endswith("svg")
    texts = ["".join(one.itertext()) for one in root.iter() if one.tag.endswith("}text")]
    assert [key.text for key in found[name].legend if key.text not in texts] == []
    assert any(one.text == found[name].says for one in root.iter() if one.tag.endswith("}description"))
    with Image.open(png) as image:
        assert image.size[0] == 2 * WIDE.width
        assert image.info["Description"] == found[name].says
        margin = image.convert("L").crop((image.size[0] - 2, 0, *image.size))
        assert margin.getextrema() == (255, 255)  # nothing is cut off
