"""What every tuner keeps to: proposals in bounds, made again from the record, nothing dropped."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import asdict, replace

import pytest

from nas.tuning import SPACE, TUNERS, Point, Space, Tuner, installed, text_space
from tests.tables import ComesTo

START = Point(rate=1.0, batch=1.0, weight_decay=5e-4, label_smoothing=0.1, dropout=0.0, momentum=0.9)
TEXT = replace(START, weight_decay=0.1, label_smoothing=0.0)


Losses = Callable[[int], float]


def loss(point: Point) -> float:
    """Least at 2.5 times the rate and without dropout; the rest does not matter."""
    return abs(math.log(point.rate / 2.5)) + point.dropout


class TunerConformance:
    """A tuner supplies its `kind`; what it tunes, and from where, is that of images unless stated."""

    kind: type[Tuner]
    space: Space = SPACE
    start: Point = START

    def make(self, random_seed: int = 1) -> Tuner:
        if not installed(self.kind.library):
            pytest.skip(f"{self.kind.library} is not installed")
        return self.kind(random_seed, self.space)

    def told(self, tuner: Tuner, num: int) -> dict[int, Point]:
        """So many trials, each told when three later ones were dispatched; one in seven is dropped."""
        points: dict[int, Point] = {}
        for number in range(num):
            points[number] = tuner.ask(number, self.start)
            self.step(tuner, number, points)
        return points

    def step(self, tuner: Tuner, number: int, points: dict[int, Point]) -> None:
        tuner.dispatched(number, points[number])
        if number >= 3:
            self.end(tuner, number - 3, points)

    def end(self, tuner: Tuner, number: int, points: dict[int, Point]) -> None:
        if number % 7 == 3:
            tuner.drop(number)
        else:
            tuner.tell(number, points[number], loss(points[number]))

    def test_proposals_are_within_the_space_and_what_was_told_is_counted_whole(self) -> None:
        tuner = self.make()
        for point in self.told(tuner, 60).values():
            for name, value in asdict(point).items():
                if value != getattr(self.start, name):
                    assert self.space[name].nearest(value) == pytest.approx(value)
        assert tuner.num_told == 57 - len(range(3, 57, 7))

    def test_from_a_record_it_goes_on_as_if_it_had_never_stopped(self) -> None:
        live, again = self.make(), self.make()
        points = self.told(live, 40)
        for number in points:  # nothing is asked
            self.step(again, number, points)
        after = [[tuner.ask(number, self.start) for number in (40, 41)] for tuner in (live, again)]
        assert after[0] == after[1]

    def test_to_ask_changes_nothing(self) -> None:
        asked, silent = self.make(), self.make()
        points = self.told(silent, 30)
        for number in points:
            asked.ask(1000 + number, self.start)
            self.step(asked, number, points)
        assert asked.ask(30, self.start) == silent.ask(30, self.start)

    @pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
    def test_a_loss_that_is_no_number_is_refused_and_named(self, wrong: float) -> None:
        tuner = self.make()
        tuner.dispatched(0, self.start)
        with pytest.raises(ValueError, match="trial 0 has the loss"):
            tuner.tell(0, self.start, wrong)
        tuner.tell(0, self.start, 1.0)  # it is still running: nothing was lost by the refusal
        assert tuner.num_told == 1

    def test_a_history_of_failures_only(self) -> None:
        tuner = self.make()
        for number in range(100):
            tuner.dispatched(number, tuner.ask(number, self.start))
            tuner.drop(number)
        assert tuner.num_told == 0
        assert isinstance(tuner.ask(100, self.start), Point)

    @pytest.mark.parametrize("loss", [lambda number: 0.5, float], ids=["equal", "of strange points"])
    @pytest.mark.parametrize("point", [None, Point(1e9, 0.37, 0.0, 0.9, 0.99, 0.0)], ids=["start", "outside"])
    def test_equal_losses_and_points_outside_the_space(self, point: Point | None, loss: Losses) -> None:
        """Those outside are told at its border."""
        tuner = self.make()
        for number in range(60):
            tuner.dispatched(number, point or self.start)
            tuner.tell(number, replace(point or self.start, batch=1.7), loss(number))
        assert tuner.num_told == 60
        assert isinstance(tuner.ask(60, self.start), Point)

    def test_what_was_changed_is_told_as_it_was_trained(self) -> None:
        """Out of memory a trial goes on with half the batch: that is what its loss says something of."""
        changed, plain = self.make(), self.make()
        for number in range(20):
            asked = plain.ask(number, self.start)
            trained = replace(asked, batch=0.5, rate=0.25)
            changed.dispatched(number, asked)
            plain.dispatched(number, trained)
            for tuner in (changed, plain):
                tuner.tell(number, trained, loss(trained))
        asked_then = [[t.ask(number, self.start) for number in range(20, 30)] for t in (changed, plain)]
        assert asked_then[0] == asked_then[1]

    def test_who_is_not_running_cannot_end(self) -> None:
        tuner = self.make()
        tuner.dispatched(1, self.start)
        with pytest.raises(ValueError, match="second time"):
            tuner.dispatched(1, self.start)
        with pytest.raises(ValueError, match="trial 2 ends"):
            tuner.tell(2, self.start, 1.0)
        with pytest.raises(ValueError, match="trial 2 ends"):
            tuner.drop(2)


class LearnerConformance(TunerConformance):
    """What a tuner keeps to that proposes other values than the parent's."""

    def test_another_random_seed_proposes_otherwise(self) -> None:
        assert self.make(1).ask(0, self.start) != self.make(2).ask(0, self.start)

    def test_rates_are_drawn_evenly_by_their_logarithm(self) -> None:
        """Before anything is known: as many below the configured one as above it, as many decays below the
        middle of their logarithms. About half of them are the parent's."""
        tuner = self.make()
        asked = [tuner.ask(number, self.start) for number in range(300)]
        for name in ("rate", "weight_decay"):
            middle = math.sqrt(self.space[name].low * self.space[name].high)
            drawn = [
                getattr(point, name) for point in asked if getattr(point, name) != getattr(self.start, name)
            ]
            assert 100 < len(drawn) < 200
            assert 0.35 < sum(value < middle for value in drawn) / len(drawn) < 0.65, name

    def test_what_runs_is_known_and_not_taken_for_the_best(self) -> None:

        def asked(runs_at: float | None) -> list[float]:
            """A hundred rates, after forty trials that are best at 0.5 and while ten run."""
            tuner = self.make()
            for number in range(40):
                point = replace(self.start, rate=0.25 * 16 ** (number / 39))
                tuner.dispatched(number, point)
                tuner.tell(number, point, 1 + abs(math.log(point.rate / 0.5)))
            for number in range(40, 50) if runs_at else ():
                tuner.dispatched(number, replace(self.start, rate=runs_at or 0.0))
            rates = [tuner.ask(number, replace(self.start, rate=-1.0)).rate for number in range(100, 200)]
            return [rate for rate in rates if rate > 0]

        nothing_runs = asked(None)
        assert asked(0.5) != nothing_runs
        near = [sum(abs(math.log(rate / 3.5)) < 0.3 for rate in each) for each in (asked(3.5), nothing_runs)]
        assert near[0] <= near[1] + 5

    def test_it_learns(self) -> None:
        """The last proposals are better than as many drawn evenly."""
        tuner = self.make()
        points = list(self.told(tuner, 150).values())[130:]
        rng = random.Random(1)
        evenly = [abs(math.log(0.25 * 16 ** rng.random() / 2.5)) for _ in range(1000)]
        proposed = [abs(math.log(point.rate / 2.5)) for point in points if point.rate != self.start.rate]
        assert len(proposed) > 4
        assert sum(proposed) / len(proposed) < 0.6 * sum(evenly) / len(evenly)


class TestUntuned(TunerConformance):
    kind = TUNERS["none"]

    def test_a_child_has_its_parents(self) -> None:
        strange = replace(START, momentum=0.5)
        assert self.make().ask(3, strange) == strange


@pytest.mark.nni
class TestNni(LearnerConformance):
    kind = TUNERS["nni"]


@pytest.mark.nni
class TestOptuna(LearnerConformance):
    kind = TUNERS["optuna"]


@pytest.mark.nni
class TestNniOfText(TestNni):
    space, start = text_space(TEXT), TEXT


@pytest.mark.nni
class TestOptunaOfText(TestOptuna):
    space, start = text_space(TEXT), TEXT


def test_the_space_of_images_is_fixed_and_that_of_language_is_around_the_configuration(
    comes_to_what_was_read: ComesTo,
) -> None:
    """Journals of tuned runs are checked by them: another one needs another version of the search. No weight
    decay is not tuned."""
    comes_to_what_was_read("spaces.txt", globals())


@pytest.mark.parametrize(
    "configured",
    [TEXT, replace(TEXT, weight_decay=3e-6, dropout=0.5, momentum=0.98), replace(TEXT, momentum=0.0)],
)
def test_a_tuner_of_language_receives_the_seeds_own_values(configured: Point) -> None:
    for name, dimension in text_space(configured).items():
        assert dimension.nearest(getattr(configured, name)) == getattr(configured, name)


def test_the_first_step_of_a_new_part_is_never_longer_than_the_rate() -> None:
    """By the formula of docs/growing.md, wherever a tuner may put the momentum."""
    allowed, beta2 = text_space(TEXT)["momentum"], 0.95
    for beta1 in (allowed.low, allowed.high):
        for steps in range(1, 1000):
            first = (1 - beta1) / (1 - beta1 ** (steps + 1))
            assert first * math.sqrt((1 - beta2 ** (steps + 1)) / (1 - beta2)) < 1
    assert allowed.high < math.sqrt(beta2)
