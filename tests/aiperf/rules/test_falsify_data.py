"""Images, texts and answers, falsified: how many, of which set, and a test that is too good to be true."""

from __future__ import annotations

import json
from dataclasses import replace
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiperf.journal import events
from aiperf.rules.rule import Outcome
from aiperf.rules.verdict import RunClass
from aiperf.score.lineage import recount
from aiperf.score.score import score
from aiperf.tasks.images.known_sets import CIFAR_10, KnownSet
from aiperf.tasks.images.tally import FIVE_SIGMA, Classified, chance_of_so_few
from aiperf.tasks.language.known_texts import ENWIK9
from aiperf.tasks.language.tally import FEWEST_BYTES, LEAST_OF_VALIDATION, MOST_BITS, UNIT, Predicted
from tests.aiperf.rules.forged import (
    NAMES,
    RECORDED,
    Edit,
    each,
    found,
    judged,
    one,
    recorded,
    said,
    together,
    with_config,
    with_manifest,
)
from tests.journals import Timed, replayed, within
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


def costs_the_rank(timed: list[Timed], rule: str) -> tuple[str, str]:
    """What is said of own data, which are not invalid."""
    verdict = judged(timed)
    finding = found(verdict, rule)
    assert verdict.run_class is RunClass.SMOKE
    assert finding in verdict.unmet
    return finding.outcome.name, finding.text


def test_images_and_answers_are_those_of_the_set(comes_to_what_was_read: ComesTo) -> None:
    comes_to_what_was_read("forged_images.txt", {**NAMES, **globals()})


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


# Texts: a real run of language, falsified


ROOT = Path(__file__).parents[3]
REAL = recorded("language")


def with_tested(**numbers: int) -> Edit:
    return each(events.Tested, lambda event: within(event, tally=replace(event.evaluated.tally, **numbers)))


def with_validated(**numbers: int) -> Edit:
    return each(events.Closed, lambda event: within(event, tally=replace(event.segment.tally, **numbers)))


BEST = 3.1563
"""The bits per byte of the best validation."""


def with_test_of(share: float) -> Edit:
    """This many of the bits per byte of the best validation."""
    return with_tested(units=round(share * BEST * UNIT * 134_400))


# A test that is too good to be true


def alike(units: int, **numbers: int) -> Edit:
    """Every validation has the same count of bits, so that the first network is the best, and tested."""
    return together(said(events.Tested, trial=0), with_validated(units=units, **numbers))


# A text that nobody knows, of as many bytes, and a generated one.
OWN = together(with_config(**{"data.path": "/texts/own"}), with_manifest(sha256="0" * 64))
ENWIK = with_manifest(sha256=ENWIK9.sha256)
GENERATED = together(
    with_config(**{"data.name": "synthetic-text"}),
    with_manifest(name="synthetic-text", sha256="0" * 64, synthetic=True),
)


def with_few_validated(timed: list[Timed]) -> list[Timed]:
    windows = FEWEST_BYTES // 256 - 1
    fewer = alike(round(windows * 256 * BEST * UNIT), of=windows, bytes=windows * 256)(timed)
    return with_manifest(validation_examples=windows)(fewer)


def of_bits(bits: float) -> Edit:
    """All validations and the test have this many bits per byte."""
    return together(alike(round(bits * UNIT * 25_600)), with_tested(units=round(bits * UNIT * 134_400)))


def test_the_bounds_convict_where_the_parts_of_a_text_are_known_to_be_alike(
    comes_to_what_was_read: ComesTo,
) -> None:
    """A later part of any other text may be the easier one: a table takes fewer bits than prose. No network
    needs fewer bits than a text is known to take."""
    comes_to_what_was_read("forged_texts.txt", {**NAMES, **globals(), "MOST_BITS": MOST_BITS})


def test_the_searches_that_were_measured_are_far_above_the_bound() -> None:
    texts = [(ROOT / "docs" / name).read_text() for name in ("search.jsonl", "search_longer.jsonl")]
    lines = [json.loads(line) for text in texts for line in text.splitlines()]
    shares = [line["test_error"] / line["validation_error"] for line in lines if line["data"] == "text"]
    assert len(shares) > 20
    assert 1 - min(shares) < (1 - LEAST_OF_VALIDATION) / 2


def test_eight_bits_and_more_are_worth_nothing() -> None:
    """−ln(1) = 0, and never the absolute value of a logarithm above it."""
    for bits in (8, 20):
        run = replayed(with_tested(units=134_400 * bits * UNIT)(REAL))
        found_score = score(run, recount(run).counts)
        assert found_score.quality is not None
        assert (found_score.quality.error, found_score.regulated_score) == (1.0, 0.0)
        assert found_score.ops_per_second > 0
        assert found_score.aiperf1_ops_per_second is None
    assert Predicted(1, 0, 64).floor == 1 / 1024
