"""A real run of language, falsified: the kind of its tallies, its bytes, its manifest and its control."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aiperf.journal import events
from aiperf.journal.file import read_journal
from aiperf.journal.replay import replay
from aiperf.known_sets import ENWIK9
from aiperf.rules.answers import FEWEST_BYTES, LEAST_OF_VALIDATION
from aiperf.rules.rule import Outcome
from aiperf.rules.verdict import RunClass
from aiperf.score.lineage import recount
from aiperf.score.score import score
from aiperf.tally import MOST_BITS, UNIT, Classified, Predicted
from tests.aiperf.rules.test_falsify import careful, verdict_on
from tests.aiperf.rules.test_falsify_facts import Edit, each, with_config, with_control, with_manifest
from tests.aiperf.rules.test_falsify_images import found
from tests.journals import Timed, within

ROOT = Path(__file__).parents[3]
JOURNAL = ROOT / "tests" / "recorded" / "language" / "journal.jsonl"
REAL: list[Timed] = [(line.t, line.event) for line in read_journal(JOURNAL)]


def with_tested(**numbers: int) -> Edit:
    return each(events.Tested, lambda event: within(event, tally=replace(event.evaluated.tally, **numbers)))


def with_validated(**numbers: int) -> Edit:
    return each(
        events.Closed,
        lambda e: replace(e, segment=replace(e.segment, tally=replace(e.segment.tally, **numbers))),
    )


def test_as_it_was_it_is_valid(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, careful(REAL))
    assert verdict.valid
    assert verdict.run_class is RunClass.SMOKE
    assert found(verdict, "accuracy").outcome is found(verdict, "data").outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("edit", "rule", "says"),
    [
        (with_tested(of=500), "accuracy", "in the test, but the test set has 525 windows"),
        (
            with_tested(bytes=134_399),
            "accuracy",
            "of 134,399 bytes, does not fit 525 windows of 256 in the test",
        ),
        (
            with_tested(units=MOST_BITS * UNIT * 134_400 + 1),
            "accuracy",
            "in the test, but the test set has 525 windows",
        ),
        (with_tested(units=-1), "accuracy", "in the test, but the test set has 525 windows"),
        (with_validated(of=99), "accuracy", "99 windows, but the validation set has 100"),
        (with_validated(bytes=25_601), "accuracy", "of 25,601 bytes, does not fit 100 windows of 256"),
        (
            each(events.Tested, lambda e: within(e, tally=Classified(525, 500))),
            "accuracy",
            "25 of 525 wrong: the task language counts differently in the test",
        ),
        (with_manifest(bytes=10**9), "data", "the bundled text has 2690563"),
        (
            with_manifest(test_examples=9),
            "data",
            "test_examples is 9, but the text and the configuration give 525",
        ),
        (
            with_control(network="", size=65),
            "measurements",
            "used windows of 65 bytes; possible sizes are 1024",
        ),
        (
            with_control(network="gpt-9x9"),
            "measurements",
            "used the network 'gpt-9x9', which the task does not",
        ),
        (
            with_control(size=128),
            "measurements",
            "used windows of 128 bytes; possible sizes are 64",
        ),
        (with_control(examples_per_second=9.0), "measurements", "is 9.00 windows/s, but"),
        (
            with_control(steps=10**9, seconds=1.0, examples_per_second=1e9),
            "measurements",
            "is more than Intel(R) Xeon(R) Processor can do",
        ),
    ],
)
def test_what_cannot_be_is_invalid(tmp_path: Path, edit: Any, rule: str, says: str) -> None:
    finding = found(verdict_on(tmp_path, careful(edit(REAL))), rule)
    assert finding.outcome is Outcome.FAILED
    assert says in finding.text


def test_the_smaller_network_is_a_control_that_cannot_be_ranked(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, careful(REAL))
    assert found(verdict, "measurements").outcome is Outcome.PASSED
    says = found(verdict, "ranked control").text
    assert "the control of rank 1 used gpt-4x128, not GPT-2 small" in says
    short = careful(with_control(network="")(REAL))
    says = found(verdict_on(tmp_path / "short", short), "ranked control").text
    assert "the control of rank 1 used windows of 64 bytes, not windows of 1,024 bytes" in says


# A test that is too good to be true


BEST = 3.1563
"""The bits per byte of the best validation."""


def with_test_of(share: float) -> Edit:
    """So many of the bits per byte of the best validation."""
    return with_tested(units=round(share * BEST * UNIT * 134_400))


def alike(units: int, **numbers: int) -> Edit:
    """Every validation has the same count of bits, so that the first network is the best, and tested."""
    seed = each(events.Tested, lambda event: within(event, trial=0))
    return lambda timed: with_validated(units=units, **numbers)(seed(timed))


def own(timed: list[Timed]) -> list[Timed]:
    """On a text that nobody knows, of as many bytes."""
    return with_manifest(sha256="0" * 64)(with_config(**{"data.path": "/texts/own"})(timed))


def generated(timed: list[Timed]) -> list[Timed]:
    changes = {"name": "synthetic-text", "sha256": "0" * 64}
    return with_manifest(**changes, synthetic=True)(with_config(**{"data.name": "synthetic-text"})(timed))


def with_few_validated(timed: list[Timed]) -> list[Timed]:
    windows = FEWEST_BYTES // 256 - 1
    fewer = alike(round(windows * 256 * BEST * UNIT), of=windows, bytes=windows * 256)(timed)
    return with_manifest(validation_examples=windows)(fewer)


def divided(tested: Predicted) -> Predicted:
    return replace(tested, units=tested.units // 20)


def test_a_twentieth_of_the_bits_in_the_test_is_found_out(tmp_path: Path) -> None:
    """Only `Tested` is changed, which would be a four times higher regulated score."""
    forged = each(events.Tested, lambda e: within(e, tally=divided(e.evaluated.tally)))(REAL)
    verdict = verdict_on(tmp_path / "forged", careful(forged))
    assert not verdict.valid
    assert found(verdict, "accuracy").outcome is Outcome.FAILED
    assert "in its best validation: less than 0.75 times as much" in found(verdict, "accuracy").text


@pytest.mark.parametrize(
    ("text", "share", "outcome"),
    [
        (list, 0.74, Outcome.FAILED),
        (list, 0.76, Outcome.PASSED),
        (list, 1.5, Outcome.PASSED),
        (generated, 0.74, Outcome.FAILED),
        (generated, 0.76, Outcome.PASSED),
        (own, 0.74, Outcome.UNKNOWN),
        (own, 0.76, Outcome.PASSED),
        (with_manifest(sha256=ENWIK9.sha256), 0.74, Outcome.UNKNOWN),
        (with_manifest(sha256=ENWIK9.sha256), 0.76, Outcome.PASSED),
        (with_few_validated, 0.5, Outcome.UNKNOWN),
        (with_few_validated, 0.9, Outcome.PASSED),
    ],
)
def test_the_bound_convicts_where_the_parts_are_known_to_be_alike(
    tmp_path: Path, text: Edit, share: float, outcome: Outcome
) -> None:
    """A later part of any other text may be the easier one: a table takes fewer bits than prose."""
    verdict = verdict_on(tmp_path, careful(text(with_test_of(share)(REAL))))
    assert found(verdict, "accuracy").outcome is outcome


def test_on_an_own_text_that_costs_the_rank_alone(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, careful(own(with_tested(units=1)(REAL))))
    finding = found(verdict, "accuracy")
    assert verdict.valid
    assert finding in verdict.unmet
    assert finding.text.endswith("less than 0.75 times as much; the test may have the easier windows")


def test_bits_above_eight_are_not_compared(tmp_path: Path) -> None:
    """Both are errors of 1: a network that diverged gains nothing by its test."""
    diverged = alike(25_600 * 40 * UNIT)(with_tested(units=134_400 * 20 * UNIT)(REAL))
    assert found(verdict_on(tmp_path, careful(diverged)), "accuracy").outcome is Outcome.PASSED


def test_the_searches_that_were_measured_are_far_above_the_bound() -> None:
    lines = [
        json.loads(line)
        for name in ("search.jsonl", "search_longer.jsonl")
        for line in (ROOT / "docs" / name).read_text().splitlines()
    ]
    shares = [line["test_error"] / line["validation_error"] for line in lines if line["data"] == "text"]
    assert len(shares) > 20
    assert 1 - min(shares) < (1 - LEAST_OF_VALIDATION) / 2


def test_eight_bits_and_more_are_worth_nothing(tmp_path: Path) -> None:
    """−ln(1) = 0, and never the absolute value of a logarithm above it."""
    for bits in (8, 20):
        path = tmp_path / f"{bits}.jsonl"
        path.write_text(
            "".join(f"{line}\n" for line in careful(with_tested(units=134_400 * bits * UNIT)(REAL)))
        )
        run = replay(read_journal(path))
        found_score = score(run, recount(run).counts)
        assert found_score.quality is not None
        assert (found_score.quality.error, found_score.regulated_score) == (1.0, 0.0)
        assert found_score.ops_per_second > 0
        assert found_score.aiperf1_ops_per_second is None
    assert Predicted(1, 0, 64).floor == 1 / 1024
