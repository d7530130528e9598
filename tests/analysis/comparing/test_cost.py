"""Time, node-hours, money and energy to an error: against sums over the journal's own lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiperf.errors import AiperfError
from aiperf.journal.events import Closed, Ended, LegBegan
from aiperf.journal.file import read_journal
from aiperf.wire.trial import State
from analysis.comparing.comparison import table_text
from analysis.comparing.cost import RunCost, cost, cost_table, cost_text, whole_table
from analysis.comparing.spread import median, olympic, variation
from analysis.pages.comparisons import cost_html
from analysis.pages.figures.cost import cost_pictures
from analysis.pages.figures.svg import inline
from analysis.readings.energy import Level
from analysis.readings.judgement import Judged, examine
from analysis.readings.progress import falls, node_hours
from launch.price import Price
from tests.aiperf.rules.forged import each, said
from tests.analysis.comparing.test_acceptance import seeded
from tests.journals import CIFAR, RELEASE_SECONDS, Machine, Scene, Timed, resized, told, write_run
from tests.tables import ComesTo

PRICE = Price(12.5, "USD")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Judged]:
    """Five seeds on two groups of two devices, 300 W each."""
    folder = tmp_path_factory.mktemp("seeds")
    machine = Machine(groups=2, watts=300.0, failing=0.0)
    return [seeded(folder, machine, seed, 1.0) for seed in range(1, 6)]


def made(folder: Path, timed: list[Timed], master: str = "", first_leg: int = 0) -> Judged:
    """A run whose master is on this host from this leg on."""
    sits = each(LegBegan, lambda e: replace(e, host=master) if e.index >= first_leg else e)
    return examine(write_run(folder, sits(timed)))


def the_only(run: Judged, error: float, price: Price | None = None) -> RunCost:
    (one,) = cost([run], error, price).runs
    return one


def test_the_first_validation_at_the_error_is_its_time(runs: list[Judged]) -> None:
    """Times and errors of all validations are read from the lines alone."""
    for run in runs:
        lines = [line.event for line in read_journal(run.files.journal)]
        ends = [event.finished for event in lines if isinstance(event, Ended)]
        ended = {end.trial for end in ends if end.state is not State.FAILED}
        seen = sorted(
            (event.end - RELEASE_SECONDS, event.segment.tally.error)
            for event in lines
            if isinstance(event, Closed) and event.segment.trial in ended
        )
        lowest = min(error for _, error in seen)
        for error in (0.9, 0.5, lowest, lowest * 0.999):
            first = next((time for time, found in seen if found <= error), None)
            one = the_only(run, error, PRICE)
            assert (one.first and one.first.seconds) == pytest.approx(first)
            assert (one.spent is None) == (first is None)


def test_a_trial_that_failed_leaves_no_network_at_the_error(tmp_path: Path) -> None:
    """The same journal twice: the trial with the lowest error ends by itself, then by a failure."""
    whole = made(tmp_path / "whole", told(Scene()))
    best = falls(whole.replay)[-1]
    failed = said(Ended, best.trial, state=State.FAILED)(told(Scene()))
    other = falls(made(tmp_path / "failed", failed).replay)
    assert best.trial not in {fall.trial for fall in other}
    assert other[-1].error > best.error


def test_the_master_may_have_a_node_of_its_own(tmp_path: Path) -> None:
    counted = {}
    for name, host in (("alone", "login"), ("beside", "node1"), ("silent", "")):
        run = made(tmp_path / name, told(Scene()), host)
        counted[name] = node_hours(run.replay) / run.replay.span_seconds * 3600
        says = "These journals do not name the master's node" in "".join(cost_text(cost([run], 0.5, None)))
        assert says == (name == "silent")
    assert counted == pytest.approx({"alone": 3.0, "beside": 2.0, "silent": 2.0})


def test_the_legs_of_a_run_follow_one_another(tmp_path: Path) -> None:
    """A leg of two nodes, then one of which the master sits elsewhere: two, then three nodes."""
    run = made(tmp_path / "run", told(Scene(killed_at=20.0)), "login", 1)
    first, second = (leg.span_seconds for leg in run.replay.legs)
    assert second > 1
    assert node_hours(run.replay) * 3600 == pytest.approx(2 * first + 3 * second)
    assert node_hours(run.replay, first + 1) * 3600 == pytest.approx(2 * first + 3)
    assert node_hours(run.replay, first - 1) * 3600 == pytest.approx(2 * (first - 1))
    times = [fall.seconds for fall in falls(run.replay)]
    assert times == sorted(times)


def test_reached_means_in_a_validation_and_in_the_test(runs: list[Judged]) -> None:
    (run, *_) = runs
    tested = run.replay.tested
    assert tested is not None
    one = the_only(run, 0.5)
    assert (one.why_not, one.is_reached) == ("", True)
    validated = falls(run.replay)[-1].error
    between = (validated + tested.tally.error) / 2
    assert validated < between < tested.tally.error
    one = the_only(run, between)
    assert (one.why_not, one.to_error) == ("not reached in the test", None)
    assert one.first is not None
    one = the_only(run, validated * 0.9)
    assert (one.why_not, one.first) == ("not reached", None)


def test_a_run_that_was_not_tested_has_not_reached_it(tmp_path: Path) -> None:
    run = made(tmp_path / "run", told(Scene())[:-1])
    one = the_only(run, 0.5)
    assert (one.why_not, one.test_error, one.to_error) == ("not tested", None, None)
    assert "Not to be used as results: simulated is " in "".join(cost_text(cost([run], 0.5, None)))


def test_the_terminal_shows_it(runs: list[Judged], as_it_was_read: Callable[[str, str], None]) -> None:
    """All nodes are paid, and all devices counted: four of 300 W have 72 kJ a minute. Carbon is that of one
    level, by an intensity that was given: 72 kJ are 20 Wh. Of the nodes nobody measured anything, and the
    devices' energy does not stand in. A row has the error of the validation that reached it, or else the
    lowest, the epochs of all networks until then, and the tested network. One seed of five does not reach the
    error of the last table."""
    study = cost([runs[0]], 0.5, PRICE)
    levels = (whole_table(cost([runs[0]], 0.5, None, level, carbon=400.0)) for level in (Level.L0, Level.L1))
    tables = whole_table(study), cost_table(study), *levels, cost_table(cost(runs, 0.5, None, carbon=400.0))
    reached = cost_table(cost([runs[0]], 1e-9, None)), cost_table(cost(runs, 0.285, None))
    texts = ["\n".join(cost_text(study)), *map(table_text, (*tables, *reached))]
    as_it_was_read("\n\n".join(texts) + "\n", "cost.txt")


def test_the_page_shows_each_run_over_time_and_over_money(runs: list[Judged]) -> None:
    runs = runs[:2]
    study = cost(runs, 0.3, PRICE)
    over_time, over_money = cost_pictures(study)
    for picture in (over_time, over_money):
        drawn = inline(picture)
        assert drawn.wide.count("<svg") == drawn.narrow.count("<svg") == 1
        assert [key.text for key in picture.legend][:2] == ["seed-1", "seed-2"]
        assert picture.table is not None
        assert len(picture.table.rows) == sum(len(falls(run.replay)) for run in runs)
    page = cost_html(study, runs)
    assert "Error 30.00 %" in page
    assert page.count("<figure") == 3
    assert "trials reached an error of 30.00" in page
    assert [one.name for one in cost_pictures(cost(runs, 0.3, None))] == ["over-time"]


def test_what_makes_no_mean_is_refused(runs: list[Judged], tmp_path: Path) -> None:
    with pytest.raises(AiperfError, match="give each run once"):
        cost([runs[0], runs[0]], 0.5, None)
    for groups, minutes, reason in (
        (3, 1.0, r"3-1.0 has 3 nodes and 6 devices and .* has 2 nodes and 4 dev"),
        (2, 1.1, "is not comparable with"),
    ):
        folder = tmp_path / f"{groups}-{minutes}"
        other = examine(write_run(folder, resized(CIFAR, minutes), Machine(groups=groups)))
        with pytest.raises(AiperfError, match=reason):
            cost([runs[0], other], 0.5, None)


def test_the_sum_of_some_runs(comes_to_what_was_read: ComesTo) -> None:
    names = {"median": median, "olympic": olympic, "variation": variation, "inf": inf}
    comes_to_what_was_read("sums.txt", names)


@given(st.lists(st.floats(0.1, 1e6), min_size=3, max_size=12), st.randoms())
def test_the_order_of_the_runs_says_nothing(values: list[float], random: object) -> None:
    shuffled = sorted(values, key=lambda _: random.random())  # type: ignore[attr-defined]
    for reading in (median, olympic, variation):
        assert reading(shuffled).value == pytest.approx(reading(values).value)
    found = olympic(values).value
    assert found is not None
    assert min(values) <= found * (1 + 1e-9)
    assert found <= max(values) * (1 + 1e-9)
