"""A recorded run of language as pages and lists show it: windows and bytes, and no image."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.errors import AiperfError
from aiperf.journal.run_files import RunFiles
from aiperf.score.score import score
from analysis.comparing.characteristics import control_cost
from analysis.comparing.published import published
from analysis.comparing.scaling import scaling
from analysis.exports.watch import watch_text
from analysis.pages.figures.architecture import architecture_picture
from analysis.pages.figures.picture import WIDE
from analysis.pages.report import report_html
from analysis.readings.architecture import architecture
from analysis.readings.hosts import control_reading
from analysis.readings.judgement import Judged, glance
from analysis.readings.live import Follower
from analysis.readings.score_figures import figures
from nas.text_seeds import TEXT_SEEDS

RECORDED = Path(__file__).parents[2] / "recorded"


def read(name: str) -> Judged:
    return glance(RunFiles(RECORDED / name))


@pytest.fixture(scope="module")
def language() -> Judged:
    return read("language")


@pytest.fixture(scope="module")
def images() -> Judged:
    return read("alone")


def test_the_report_speaks_of_windows_and_bytes(language: Judged) -> None:
    text = report_html(language)
    control = "gpt-4x128 in place of GPT-2 small at windows of 64 bytes"
    for words in ("operations per window", "windows trained", "bits per byte", control):
        assert words in text
    for words in ("images/s", "operations per image", "training image", "ResNet"):
        assert words not in text


def control_line(judged: Judged) -> str:
    return figures(judged.replay, judged.score)["control_examples_per_second"].line


def test_the_control_is_told_in_bytes_per_second_by_its_network(language: Judged, images: Judged) -> None:
    """The smaller one by its name; beside it, or alone, the task's own."""
    for run, per_example in ((language, 64), (images, 1)):
        reading = control_reading(run.replay)
        assert reading is not None
        assert run.score.control is not None
        assert reading.per_second == per_example * run.score.control.examples_per_second
    smaller = "gpt-4x128 in place of GPT-2 small at windows of 64 bytes"
    assert control_line(language) == f"12,414 bytes/s ({smaller})"
    cost = control_cost(language.replay)
    assert cost is not None
    assert (cost.short, cost.parameters) == ("gpt-4x128", 867_072)
    judged = read("language")
    controls = judged.replay.leg.controls
    controls[2] = replace(controls[1], rank=2, network="", size=1024)
    assert control_line(judged).endswith(
        f" bytes/s (GPT-2 small over bytes at windows of 1,024 bytes and {smaller})"
    )
    controls[1] = replace(controls[1], network="")
    assert control_line(judged) == (
        "211,046 bytes/s (GPT-2 small over bytes at windows of 64 bytes and windows of 1,024 bytes)"
    )


def test_two_ranks_that_ended_at_two_networks_are_added_up_at_the_one_that_both_timed() -> None:
    judged = read("language")
    controls = judged.replay.leg.controls
    controls[2] = replace(controls[1], rank=2, network="", size=1024, others=controls[1].rungs)
    found, alone = score(judged.replay, {}).control, judged.score.control
    assert found is not None
    assert alone is not None
    assert found.examples_per_second == pytest.approx(2 * alone.examples_per_second)
    assert control_line(judged) == "24,829 bytes/s (gpt-4x128 in place of GPT-2 small at windows of 64 bytes)"


def test_who_watches_sees_bytes_per_second() -> None:
    follower = Follower(RunFiles(RECORDED / "language"))
    follower.update()
    assert follower.snapshot().rates_of == "bytes"
    assert "bytes/s" in watch_text(follower.snapshot(), 120, 30)


def test_figures_of_two_tasks_are_never_compared(language: Judged, images: Judged) -> None:
    with pytest.raises(AiperfError, match="runs of different tasks cannot be compared"):
        scaling([images, language])
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
