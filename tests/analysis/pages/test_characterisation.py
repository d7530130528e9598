"""Trials as dots: the scatter of parameters, operations and epochs to an error, and the Pareto front."""

from __future__ import annotations

from statistics import median, stdev
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiperf.journal.events import Closed, Dispatched
from aiperf.journal.file import read_journal
from aiperf.tasks.images.task import IMAGES
from analysis.comparing.characteristics import ControlNetworkCost, Trained, control_cost, thirds, trained
from analysis.pages.figures.characterisation import THIRDS, characterisation
from analysis.pages.figures.pareto import Dot, dots, front, pareto
from analysis.pages.figures.picture import WIDE
from analysis.readings.judgement import Judged
from analysis.readings.trial_rows import TrialRow, median_error, rows
from tests.analysis.readings.test_judgement import row

IMAGES_TRAINED = 45_000


@pytest.fixture(scope="module")
def found(judged: Judged) -> list[TrialRow]:
    return rows(judged.replay, judged.recount.counts)


def test_epochs_to_the_median_error_are_those_of_the_lines(judged: Judged, found: list[TrialRow]) -> None:
    """A child begins with what its parent had when its error was lowest."""
    lines = [line.event for line in read_journal(judged.files.journal)]
    parents = {e.trial.number: e.trial.parent for e in lines if isinstance(e, Dispatched)}
    last = {e.trial.number: e.attempt for e in lines if isinstance(e, Dispatched)}
    done: dict[int, list[tuple[float, float]]] = {number: [] for number in parents}
    for event in lines:
        if isinstance(event, Closed) and event.segment.attempt == last[event.segment.trial]:
            before = done[event.segment.trial][-1][0] if done[event.segment.trial] else 0.0
            epochs = before + event.segment.train_examples / IMAGES_TRAINED
            done[event.segment.trial].append((epochs, event.segment.error))
    kept: dict[int | None, float] = {None: 0.0}
    error = median_error(found)
    assert error is not None
    expected = {}
    for number in sorted(done):
        begun = kept[parents[number]]
        kept[number] = begun + (min(done[number], key=lambda one: one[1])[0] if done[number] else 0.0)
        expected[number] = next((begun + epochs for epochs, at in done[number] if at <= error), None)
    assert {one.number: one.epochs_to(error) for one in found} == pytest.approx(expected)
    reached = sum(one is not None for one in expected.values())
    assert len(found) / 3 < reached < len(found)


def test_the_figure_says_what_there_is(judged: Judged, found: list[TrialRow]) -> None:
    error, control = median_error(found) or 0.0, control_cost(judged.replay)
    assert control is not None
    assert (control.operations, control.parameters) == (24_520_404_032, 25_557_032)  # of ResNet-50 at 224²
    placed = trained([("", found)], error)
    picture = characterisation(placed, error, IMAGES, control, ", so")
    reached = [one.epochs for one in placed if one.epochs is not None]
    assert picture.says.startswith(f"{len(reached)} of {len(placed)} validated trials reached an error of ")
    assert ", so, after " in picture.says
    assert "The control, ResNet-50 v1.5 at 224²: 24.52 GOP, 25,557,032 parameters." in picture.says
    assert picture.table is not None
    table = {str(line[0]): line[1:] for line in picture.table.rows}
    operations = [one.operations for one in placed]
    intensities = [one.row.intensity or 0.0 for one in placed]
    assert table["median"][0] == f"{median(operations):,.0f}"
    assert table["coefficient of variation"][2] == (
        f"{100 * stdev(intensities) / (sum(intensities) / len(placed)):.2f} %"
    )
    assert table["trials"] == [*[f"{len(placed)}"] * 3, f"{len(reached)}"]
    assert picture.labels is not None
    assert len(picture.labels) == len(placed)


@pytest.mark.parametrize(
    ("control", "corner"),
    [
        (None, ""),
        (ControlNetworkCost("", "ResNet-50", 30, 6, None), ""),
        (ControlNetworkCost("", "ResNet-50", 10**9, 10**6, None), "ResNet-50: beyond this corner"),
    ],
)
def test_a_control_far_from_the_trials_is_at_the_edge(
    control: ControlNetworkCost | None, corner: str
) -> None:
    placed = [Trained("", row(n), 10 + n, 5 + n, None) for n in range(3)]
    picture = characterisation(placed, 0.5, IMAGES, control)
    axes = picture.draw(WIDE).figure.axes[0]
    assert [text.get_text() for text in axes.texts] == ([corner] if corner else [])
    low, high = axes.get_xlim()
    assert high < 40
    assert low < 10


@given(st.lists(st.sampled_from([1.0, 2.0, 3.0, 4.0, 7.5]), max_size=30))
def test_the_parts_hold_each_that_reached_it_once(epochs: list[float]) -> None:
    parts = thirds([Trained("", row(0), 1, 1, value) for value in epochs])
    assert len(parts) <= len(THIRDS)
    for value in epochs:
        assert sum(low <= value <= high for low, high in parts) == 1


def test_of_many_some_are_drawn_and_all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analysis.pages.figures.characterisation.TRIALS_SHOWN", 10)
    placed = [Trained("", row(n), 10 + n, 5 + n, 1.0) for n in range(100)]
    picture = characterisation(placed, 0.5, IMAGES, None)
    assert picture.labels is not None
    assert len(picture.labels) == 10
    assert picture.says.startswith("100 of 100 validated trials reached an error of 50.00 %, after 1 epoch, ")


@given(st.lists(st.tuples(st.integers(1, 9), st.sampled_from([0.0, 0.1, 0.2, 0.3])), max_size=12))
def test_no_other_trial_beats_one_of_the_front(places: list[tuple[int, float]]) -> None:
    numbered: list[Any] = [SimpleNamespace(number=number) for number in range(len(places))]
    found = [Dot(*place, row) for place, row in zip(places, numbered)]

    def beaten(one: Dot) -> bool:
        place, own = (one.operations, one.error), one.row.number
        return any(
            other.operations <= one.operations
            and other.error <= one.error
            and ((other.operations, other.error) != place or other.row.number < own)
            for other in found
        )

    expected = sorted((one for one in found if not beaten(one)), key=lambda one: one.operations)
    assert front(found) == expected


def test_what_has_no_error_or_no_count_has_no_place() -> None:
    rows: list[Any] = [
        SimpleNamespace(number=0, operations=5, error=0.5),
        SimpleNamespace(number=1, operations=None, error=0.1),
        SimpleNamespace(number=2, operations=3, error=None),
    ]
    assert dots(rows) == [Dot(5, 0.5, rows[0])]


def test_one_trial_may_be_better_than_all_others_in_both() -> None:
    trial = SimpleNamespace(origin="", parameters=9, epochs=1)
    rows: list[Any] = [
        SimpleNamespace(**vars(trial), number=n, operations=5 + n, error=0.1 * n) for n in (1, 2, 3)
    ]
    assert pareto(rows, IMAGES, {}, ()).says == (
        "Of 3 validated trials trial 1 (6 OP, 10.00 %) has both the fewest operations and the lowest error."
    )
