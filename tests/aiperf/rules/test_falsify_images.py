"""Images and answers, falsified: how many there are, of which set, and a test that is too good to be true."""

from __future__ import annotations

from math import comb
from typing import Any

import numpy as np
import pytest

from aiperf.journal import events
from aiperf.rules.rule import Outcome
from aiperf.rules.verdict import RunClass
from aiperf.tasks.images.known_sets import CIFAR_10, KnownSet
from aiperf.tasks.images.tally import FIVE_SIGMA, Classified, chance_of_so_few
from tests.aiperf.rules.forged import (
    NAMES,
    RECORDED,
    TIMED,
    Edit,
    failed,
    found,
    judged,
    one,
    recorded,
    said,
    together,
    with_config,
    with_manifest,
)
from tests.tables import ComesTo


def with_test(of: int, correct: int) -> Edit:
    return said(events.Tested, tally=Classified(of, correct))


# Images of nobody knows where, in numbers that fit the configuration.
OWN_IMAGES = together(with_config(**{"data.name": "idx"}), with_manifest(name="idx", sha256="0" * 64))


def of_known(known: KnownSet, **more: object) -> Edit:
    """A run on another set, as it is or otherwise."""
    validation, a_class = 400, 400 // known.classes
    used = known.official_training_examples - validation
    config = {"data.name": known.name, "data.classes": known.classes, "data.channels": known.channels or 3}
    entries: dict[str, Any] = {
        "name": known.name,
        "sha256": known.sha256 or "1" * 64,
        **known.facts({}),
        "channels": known.channels or 3,
        "training_examples": used,
        "training_examples_per_class": [used // known.classes, -(-used // known.classes)],
        "validation_examples_per_class": [a_class, -(-400 // known.classes)],
        **more,
    }
    return together(with_config(**config), with_manifest(**entries))


MANY = with_test(10**12, 10**12 - 1)
FEWER = of_known(CIFAR_10, training_examples=1000, training_examples_per_class=[100, 100])


def more_tested(times: int) -> Edit:
    """More test images than the set has."""
    of = 1197 * times
    sizes = [116 * times, 122 * times]
    return together(with_manifest(test_examples=of, test_examples_per_class=sizes), with_test(of, of - 1))


def seven_times(known: KnownSet) -> Edit:
    sizes = [7 * size for size in known.test_examples_per_class]
    return of_known(known, test_examples=7 * known.test_examples, test_examples_per_class=sizes)


def test_images_and_answers_are_those_of_the_set(comes_to_what_was_read: ComesTo) -> None:
    comes_to_what_was_read("forged_images.txt", {**NAMES, **globals()})


def test_own_images_are_not_invalid_and_cost_the_rank() -> None:
    assert failed(OWN_IMAGES(TIMED)) == {}
    verdict = judged(OWN_IMAGES(TIMED))
    assert found(verdict, "data").outcome is Outcome.UNKNOWN
    assert found(verdict, "data") in verdict.unmet
    assert verdict.run_class is RunClass.SMOKE


# The chance of an honest run to look so


@pytest.mark.parametrize(
    "run",
    sorted(path.parent.name for path in RECORDED.glob("*/journal.jsonl") if path.parent.name != "language"),
)
def test_a_real_run_passes_until_its_test_is_made_perfect(run: str) -> None:
    lines = recorded(run)
    assert found(lines, "accuracy").outcome is Outcome.PASSED
    of = one(events.Tested, lines).evaluated.tally.of
    perfect = judged(with_test(of, of)(lines))
    already = run == "groups"  # of 64 images none was wrong
    assert found(perfect, "accuracy").outcome is (Outcome.PASSED if already else Outcome.FAILED)


def chance(wrong: int, of: int, missed: int, validated: int) -> float:
    return chance_of_so_few(Classified(of, of - wrong), Classified(validated, validated - missed))


@pytest.mark.parametrize(("of", "validated"), [(30, 20), (60, 40), (12, 90)])
def test_the_chance_is_bounded_by_counting_all_draws(of: int, validated: int) -> None:
    """Fisher's exact test, by whole numbers; the bound lies above it, and near it where it is small."""
    for missed in range(validated + 1):
        for wrong in range(of + 1):
            if wrong * validated >= missed * of:
                continue
            total = comb(of + validated, wrong + missed)
            ways = sum(comb(of, k) * comb(validated, wrong + missed - k) for k in range(wrong + 1))
            exact = ways / total
            assert exact <= chance(wrong, of, missed, validated) * (1 + 1e-9)
            assert chance(wrong, of, missed, validated) <= 2 * exact or exact > FIVE_SIGMA


@pytest.mark.parametrize(("of", "validated"), [(30, 20), (64, 64), (150, 50)])
def test_an_honest_run_fails_once_in_three_million_at_the_most(of: int, validated: int) -> None:
    """Whatever the network's error is, of all pairs of counts those that fail have less than that chance."""
    alarm = np.zeros((validated + 1, of + 1))
    for missed in range(validated + 1):
        for wrong in range(of + 1):
            alarm[missed, wrong] = chance(wrong, of, missed, validated) < FIVE_SIGMA
    assert alarm.any()

    def binomial(total: int, error: float) -> np.ndarray:
        return np.array([comb(total, k) * error**k * (1 - error) ** (total - k) for k in range(total + 1)])

    errors = np.linspace(0.01, 0.99, 99)
    assert max(binomial(validated, e) @ alarm @ binomial(of, e) for e in errors) < FIVE_SIGMA


def test_the_best_of_many_honest_networks_is_never_found_out() -> None:
    """Chosen on validation, as a run does: a hundred networks of nearly one error, a thousand times."""
    source = np.random.default_rng(1)
    errors = source.uniform(0.005, 0.6, (1000, 1)) + source.uniform(0, 0.02, (1000, 100))
    missed = source.binomial(400, errors)
    best = missed.argmin(axis=1)
    wrong = source.binomial(1197, errors[np.arange(1000), best])
    chances = [chance(int(w), 1197, int(m), 400) for w, m in zip(wrong, missed.min(axis=1))]
    assert min(chances) > 1e-4


def test_absurd_counts_are_judged_at_once() -> None:
    assert chance(0, 10**18, 10**5, 10**6) < FIVE_SIGMA
    assert chance(10**18, 10**18, 0, 1) == 1.0
