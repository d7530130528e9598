"""A recorded run of language as pages and lists show it: windows and bytes, and no image."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.errors import AiperfError
from aiperf.files import RunFiles
from analysis.comparing.comparison import compare
from analysis.comparing.published import published
from analysis.comparing.scaling import scaling
from analysis.exports.watch import watch_text
from analysis.pages.figures.architecture import architecture_picture
from analysis.pages.figures.style import WIDE
from analysis.pages.report import report_html
from analysis.readings.architecture.architecture import architecture
from analysis.readings.hosts import control_cost, control_reading
from analysis.readings.judged import Judged, glance
from analysis.readings.key import figures
from analysis.readings.live import Follower
from nas.text_seeds import TEXT_SEEDS

RECORDED = Path(__file__).parents[2] / "recorded"


@pytest.fixture(scope="module")
def language() -> Judged:
    return glance(RunFiles(RECORDED / "language"))


@pytest.fixture(scope="module")
def images() -> Judged:
    return glance(RunFiles(RECORDED / "alone"))


def test_the_report_speaks_of_windows_and_bytes(language: Judged) -> None:
    text = report_html(language)
    for words in ("operations per window", "windows trained", "bits per byte", "in place of GPT-2 small"):
        assert words in text
    for words in ("images/s", "operations per image", "training image", "ResNet"):
        assert words not in text


def test_the_control_is_told_in_bytes_per_second(language: Judged, images: Judged) -> None:
    reading = control_reading(language.replay)
    assert reading is not None
    assert language.score.control is not None
    assert reading.per_second == 64 * language.score.control.examples_per_second
    assert reading.text == "12,414 bytes/s"
    line = figures(language.replay, language.score)["control_examples_per_second"].line
    assert line == "12,414 bytes/s (gpt-4x128 in place of GPT-2 small at windows of 64 bytes)"
    other = control_reading(images.replay)
    assert other is not None
    assert images.score.control is not None
    assert other.per_second == images.score.control.examples_per_second


def test_the_network_is_named_wherever_the_control_is_shown() -> None:
    """The smaller one by its name; beside it, or alone, the task's own."""
    judged = glance(RunFiles(RECORDED / "language"))
    controls = judged.replay.leg.controls
    reading = control_reading(judged.replay)
    assert reading is not None
    assert reading.sizes == "windows of 64 bytes by gpt-4x128"
    cost = control_cost(judged.replay)
    assert cost is not None
    assert (cost.short, cost.parameters) == ("gpt-4x128", 867_072)
    assert "gpt-4x128 in place of GPT-2 small at windows of 64 bytes" in report_html(judged)
    controls[2] = replace(controls[1], rank=2, network="", size=1024)
    reading = control_reading(judged.replay)
    assert reading is not None
    assert reading.network == (
        "GPT-2 small over bytes at windows of 1,024 bytes and "
        "gpt-4x128 in place of GPT-2 small at windows of 64 bytes"
    )
    controls[1] = replace(controls[1], network="")
    assert figures(judged.replay, judged.score)["control_examples_per_second"].line == (
        "211,046 bytes/s (GPT-2 small over bytes at windows of 64 bytes and windows of 1,024 bytes)"
    )


def test_who_watches_sees_bytes_per_second() -> None:
    follower = Follower(RunFiles(RECORDED / "language"))
    follower.update()
    assert follower.snapshot().rates_of == "bytes"
    assert "bytes/s" in watch_text(follower.snapshot(), 120, 30)


def test_figures_of_two_tasks_are_never_compared(language: Judged, images: Judged) -> None:
    for look in (lambda: compare(images, language), lambda: scaling([images, language])):
        with pytest.raises(AiperfError, match="runs of different tasks cannot be compared"):
            look()
    with pytest.raises(AiperfError, match=r"the published points of AIPerf 1\.0 are for images"):
        published(language)
    assert published(images)


def test_equal_blocks_are_drawn_once() -> None:
    """A block of text is two blocks of the drawing, which repeat in pairs."""
    picture = architecture_picture(architecture([(None, TEXT_SEEDS["llama-4x128"]())]), 0)
    assert picture.says == (
        "The network of trial 0: 55 boxes, each a layer with the norm and activation after it; equal blocks "
        "in a row are drawn once. It is the seed itself."
    )
    drawn = [text.get_text() for text in picture.draw(WIDE).figure.axes[0].texts]
    assert "4 × block1–4" in drawn
