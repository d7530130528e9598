"""A real run of language, falsified: the kind of its tallies, its bytes, its manifest and its control."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from aiperf.journal import events
from aiperf.rules.rule import Outcome
from aiperf.rules.verdict import RunClass
from aiperf.score.lineage import recount
from aiperf.score.score import score
from aiperf.tasks.language.known_texts import ENWIK9
from aiperf.tasks.language.tally import FEWEST_BYTES, LEAST_OF_VALIDATION, MOST_BITS, UNIT, Predicted
from tests.aiperf.rules.forged import (
    NAMES,
    Edit,
    each,
    found,
    judged,
    recorded,
    said,
    together,
    with_config,
    with_manifest,
)
from tests.journals import Timed, replayed, within
from tests.tables import ComesTo

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


def test_on_an_own_text_that_costs_the_rank_alone() -> None:
    verdict = judged(OWN(with_tested(units=1)(REAL)))
    finding = found(verdict, "accuracy")
    assert verdict.valid
    assert finding in verdict.unmet
    assert finding.text.endswith("less than 0.75 times as much; the test may have the easier windows")


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
