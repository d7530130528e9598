"""A real run of language, falsified: the kind of its tallies, its bytes, its manifest and its control."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.journal import events
from aiperf.rules.rule import Outcome
from aiperf.rules.verdict import RunClass
from aiperf.score.lineage import recount
from aiperf.score.score import score
from aiperf.tasks.images.tally import Classified
from aiperf.tasks.language.known_texts import ENWIK9
from aiperf.tasks.language.tally import FEWEST_BYTES, LEAST_OF_VALIDATION, MOST_BITS, UNIT, Predicted
from tests.aiperf.rules.forged import (
    Edit,
    each,
    found,
    judged,
    recorded,
    rows,
    said,
    together,
    with_config,
    with_control,
    with_manifest,
)
from tests.journals import Timed, replayed, within

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


def test_as_it_was_it_is_valid() -> None:
    verdict = judged(REAL)
    assert verdict.valid
    assert verdict.run_class is RunClass.SMOKE
    assert found(verdict, "accuracy").outcome is found(verdict, "data").outcome is Outcome.PASSED


CANNOT_BE = {
    "accuracy": [
        (with_tested(of=500), "in the test, but the test set has 525 windows"),
        (with_tested(bytes=134_399), "of 134,399 bytes, does not fit 525 windows of 256 in the test"),
        (with_tested(units=MOST_BITS * UNIT * 134_400 + 1), "in the test, but the test set has 525 windows"),
        (with_tested(units=-1), "in the test, but the test set has 525 windows"),
        (with_validated(of=99), "99 windows, but the validation set has 100"),
        (with_validated(bytes=25_601), "of 25,601 bytes, does not fit 100 windows of 256"),
        (said(events.Tested, tally=Classified(525, 500)), "25 of 525 wrong: the task language counts differ"),
        # A twentieth of the bits, for a four times higher regulated score.
        (with_test_of(0.05), "in its best validation: less than 0.75 times as much"),
    ],
    "data": [
        (with_manifest(bytes=10**9), "the bundled text has 2690563"),
        (with_manifest(test_examples=9), "is 9, but the text and the configuration give 525"),
    ],
    "measurements": [
        (with_control(network="", size=65), "used windows of 65 bytes; possible sizes are 1024"),
        (with_control(network="gpt-9x9"), "used the network 'gpt-9x9', which the task does not"),
        (with_control(size=128), "used windows of 128 bytes; possible sizes are 64"),
        (with_control(examples_per_second=9.0), "is 9.00 windows/s, but"),
        (with_control(steps=10**9, seconds=1.0, examples_per_second=1e9), "is more than Intel(R) Xeon(R) P"),
    ],
}


@pytest.mark.parametrize(("rule", "edit", "says"), rows(CANNOT_BE))
def test_what_cannot_be_is_invalid(rule: str, edit: Edit, says: str) -> None:
    finding = found(edit(REAL), rule)
    assert finding.outcome is Outcome.FAILED
    assert says in finding.text


def test_the_smaller_network_is_a_control_that_cannot_be_ranked() -> None:
    assert found(REAL, "measurements").outcome is Outcome.PASSED
    says = "the control of rank 1 used gpt-4x128, not GPT-2 small"
    assert says in found(REAL, "ranked control").text
    says = "the control of rank 1 used windows of 64 bytes, not windows of 1,024 bytes"
    assert says in found(with_control(network="")(REAL), "ranked control").text


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


@pytest.mark.parametrize(
    ("text", "share", "outcome"),
    [
        (list, 0.74, Outcome.FAILED),
        (list, 0.76, Outcome.PASSED),
        (list, 1.5, Outcome.PASSED),
        (GENERATED, 0.74, Outcome.FAILED),
        (GENERATED, 0.76, Outcome.PASSED),
        (OWN, 0.74, Outcome.UNKNOWN),
        (OWN, 0.76, Outcome.PASSED),
        (ENWIK, 0.74, Outcome.UNKNOWN),
        (ENWIK, 0.76, Outcome.PASSED),
        (with_few_validated, 0.5, Outcome.UNKNOWN),
        (with_few_validated, 0.9, Outcome.PASSED),
    ],
)
def test_the_bound_convicts_where_the_parts_are_known_to_be_alike(
    text: Edit, share: float, outcome: Outcome
) -> None:
    """A later part of any other text may be the easier one: a table takes fewer bits than prose."""
    assert found(text(with_test_of(share)(REAL)), "accuracy").outcome is outcome


def of_bits(bits: float) -> Edit:
    """All validations and the test have this many bits per byte."""
    return together(alike(round(bits * UNIT * 25_600)), with_tested(units=round(bits * UNIT * 134_400)))


@pytest.mark.parametrize(
    ("text", "bits", "outcome"),
    [
        (GENERATED, 1.10, Outcome.FAILED),
        (GENERATED, 1.12, Outcome.PASSED),
        (ENWIK, 0.64, Outcome.UNKNOWN),
        (ENWIK, 0.65, Outcome.PASSED),
        (list, 0.45, Outcome.FAILED),
        (list, 0.46, Outcome.PASSED),
        (OWN, 0.1, Outcome.PASSED),
    ],
)
def test_no_network_needs_fewer_bits_than_a_text_is_known_to_take(
    text: Edit, bits: float, outcome: Outcome
) -> None:
    finding = found(text(of_bits(bits)(REAL)), "accuracy")
    assert finding.outcome is outcome
    assert (outcome is Outcome.PASSED) != (" bytes in the test, but " in finding.text)


def test_on_an_own_text_that_costs_the_rank_alone() -> None:
    verdict = judged(OWN(with_tested(units=1)(REAL)))
    finding = found(verdict, "accuracy")
    assert verdict.valid
    assert finding in verdict.unmet
    assert finding.text.endswith("less than 0.75 times as much; the test may have the easier windows")


def test_bits_above_eight_are_not_compared() -> None:
    """Both are errors of 1: a network that diverged gains nothing by its test."""
    diverged = alike(25_600 * 40 * UNIT)(with_tested(units=134_400 * 20 * UNIT)(REAL))
    assert found(diverged, "accuracy").outcome is Outcome.PASSED


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
