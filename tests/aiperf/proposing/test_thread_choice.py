"""The number of threads and the engine of a trial, by times of steps that were measured before the span."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from statistics import fmean, median

import pytest

from aiperf.config import TrainingConfig
from aiperf.proposing.engine_choice import Engines, Expected, Sizes, between, choose
from aiperf.proposing.thread_choice import LEAST_ROUNDS, Pair, Threads, best_pair, reliability
from aiperf.wire.reports import SEED, TYPICAL, StepTime, TimedStep
from nas.seeds import residual
from tests.tables import ComesTo


def timed(network: str, engine: str, *milliseconds: float, rounds: int = 9) -> list[TimedStep]:
    """The steps of a network on 1, 2, … threads."""
    return [TimedStep(network, num, engine, ms / 1e3, rounds) for num, ms in enumerate(milliseconds, start=1)]


# Eager steps of the seed and fused ones of grown networks are those of the preset digits, as seen on two idle
# cores of an AMD EPYC (the seed's on two threads once more, when another program ran); the others are in
# proportion.
TIMED = [
    *(timed(SEED, "eager", 15.9, 20.9) + timed(TYPICAL, "eager", 86.0, 69.0)),
    *(timed(SEED, "fused", 10.2, 11.6) + timed(TYPICAL, "fused", 43.6, 32.4)),
]


def test_a_network_that_outgrows_the_measured_ones_gets_more_threads_if_it_would_lose_much() -> None:
    """The second thread loses a tenth with the typical network, and gains with larger ones."""
    threads = Threads([*timed(SEED, "eager", 10.0, 24.0), *timed(TYPICAL, "eager", 46.0, 51.0)], 0.2)
    assert [threads.count("eager", size) for size in (0.2, 1.0, 1.2, 9.0)] == [1, 1, 1, 2]


@pytest.mark.parametrize("typical", [0.76, 0.87, 1.0, 1.02])
@pytest.mark.parametrize("seed", [0.90, 0.96, 1.15])
def test_a_network_has_the_same_threads_in_each_run_of_one_machine(seed: float, typical: float) -> None:
    """Steps of digits on two threads relative to one, as 14 runs on one machine had them: its neighbours left
    more or less of the second one."""
    of_seed = timed(SEED, "fused", 20.8, 20.8 * seed, rounds=6)
    threads = Threads([*of_seed, *timed(TYPICAL, "fused", 68.0, 68.0 * typical, rounds=6)], 0.2)
    assert {threads.count("fused", size) for size in (0.2, 0.4, 1.0)} == {2}


def test_without_times_nothing_is_chosen_and_without_a_seed_one_number_is_for_all() -> None:
    assert Threads((), 1.0).count("eager", 1.0) is None
    assert Threads(TIMED, 1.0).count("compiled", 1.0) == 2, "as eager steps, which were timed"
    alone = Threads([each for each in TIMED if each.network == TYPICAL], 1.0)
    assert {alone.count("fused", size) for size in (0.1, 1.0, 9.0)} == {2}


def test_threads_with_which_the_seed_was_hopeless_are_for_large_networks_alone() -> None:
    times = [*timed(SEED, "fused", 10.0), *timed(TYPICAL, "fused", 50.0)]
    threads = Threads([*times, TimedStep(TYPICAL, 64, "fused", 0.02, 9)], 0.2)
    assert [threads.count("fused", size) for size in (0.2, 0.3, 0.4, 1.0, 2.0)] == [1, 1, 64, 64, 64]
    assert threads.seconds("fused", 0.2) == pytest.approx({1: 0.01, 64: 0.02})


def test_ties_go_to_more_threads_and_the_default_engine_and_times_lie_between_two_sizes_and_beyond(
    comes_to_what_was_read: ComesTo,
) -> None:
    def step_seconds(size: float, seed: float | None, typical: float) -> float:
        """The seed has a fifth of the operations of the typical network."""
        return round(between(size, 0.2, seed, typical), 9)

    comes_to_what_was_read("thread_choice.txt", {"best_pair": best_pair, "step_seconds": step_seconds})


Rounds = Mapping[Pair, Sequence[float]]


def test_a_choice_is_made_again_as_often_as_it_says() -> None:
    """By 200 processors, with 2 threads from 15 % slower to 25 % faster than 1, each measured twice with a
    noise of 5 %."""
    rng = random.Random(1)

    def measured(ratio: float) -> tuple[int, float]:
        rounds = {(1, "eager"): ratio, (2, "eager"): 1.0}
        times = {pair: [time * rng.gauss(1, 0.05) for _ in range(10)] for pair, time in rounds.items()}
        count, _ = best_pair({pair: median(each) for pair, each in times.items()})
        return count, reliability(times)[0]

    twice = [(measured(0.85 + place / 500), measured(0.85 + place / 500)) for place in range(200)]
    alike = [first == again for (first, _), (again, _) in twice]
    said = [share for (_, share), _ in twice]
    assert fmean(alike) == pytest.approx(fmean(said), abs=0.03)
    sure = [same for same, share in zip(alike, said) if share >= 0.99]
    assert len(sure) > 100
    assert fmean(sure) > 0.98
    assert fmean(same for same, share in zip(alike, said) if share < 0.8) < 0.8


def test_nothing_is_known_of_how_sure_a_few_rounds_are() -> None:
    few = [0.1] * (LEAST_ROUNDS - 1)
    assert reliability({(1, "eager"): few, (2, "eager"): few}) == (0.0, 0.0)
    given_up: Rounds = {(1, "eager"): [0.1] * LEAST_ROUNDS, (2, "eager"): [9.0]}
    assert reliability(given_up) == (1.0, 1.0)


# Engines


TIMES = {
    "eager": StepTime(0.1),
    "graphed": StepTime(0.08, prepare_seconds=1.0),
    "compiled": StepTime(0.05, prepare_seconds=50.0),
    "fused": StepTime(0.0, why_not="no compiler"),
}
TRIAL = Expected(steps=2000, size=1.0, layers=1.0, seconds_left=inf)  # 200 s by the eager step


def fused(eager: float, fused: float, error: float) -> tuple[str, str]:
    """The first times are of a processor whose speed changes by several per cent from step to step: if a gain
    had to be sure, one run would take it and the next one would not."""
    times = {"eager": StepTime(eager, error=error), "fused": StepTime(fused, error=error)}
    return choose("auto", times, TRIAL)


SMALL, GROWN = residual((1, 8, 8), 3), residual((1, 8, 8), 3, (8, 16, 32))


def engines(**seeds: float) -> Engines:
    training = TrainingConfig("fp32", 16, 0.1, (1,), 64, step="auto")
    times = {"eager": StepTime(0.04), "fused": StepTime(0.02), "compiled": StepTime(0.0, why_not="too long")}
    seed_times = {name: StepTime(seconds) for name, seconds in seeds.items()}
    return Engines(training, Sizes(SMALL, GROWN, 16), times, seed_times)


def test_the_engine_is_the_one_by_which_the_trial_is_over_first(comes_to_what_was_read: ComesTo) -> None:
    """Fused steps are taken unless eager ones are surely faster, or another engine by its compilation. For a
    small network it is the one that was faster with the seed, if the seed was timed by all: only like is
    compared with like."""
    comes_to_what_was_read("engine_choice.txt", {**globals(), "replace": replace})
