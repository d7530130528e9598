"""A real run of language, falsified: the kind of its tallies, its bytes, its manifest and its control."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aiperf.journal import events
from aiperf.journal.file import read_journal
from aiperf.journal.replay import replay
from aiperf.rules.rule import Outcome
from aiperf.rules.verdict import RunClass
from aiperf.score.lineage import recount
from aiperf.score.score import score
from aiperf.tally import MOST_BITS, UNIT, Classified, Predicted
from tests.aiperf.journals import Timed, within
from tests.aiperf.rules.test_falsify import careful, verdict_on
from tests.aiperf.rules.test_falsify_facts import Edit, each, with_control, with_manifest
from tests.aiperf.rules.test_falsify_images import found

JOURNAL = Path(__file__).parents[2] / "recorded" / "language" / "journal.jsonl"
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
        (with_tested(of=2000), "accuracy", "in the test, but the test set has 2102 windows"),
        (
            with_tested(bytes=134_527),
            "accuracy",
            "of 134,527 bytes, does not fit 2,102 windows of 64 in the test",
        ),
        (
            with_tested(units=MOST_BITS * UNIT * 134_528 + 1),
            "accuracy",
            "in the test, but the test set has 2102 windows",
        ),
        (with_tested(units=-1), "accuracy", "in the test, but the test set has 2102 windows"),
        (with_validated(of=199), "accuracy", "199 windows, but the validation set has 200"),
        (with_validated(bytes=12_801), "accuracy", "of 12,801 bytes, does not fit 200 windows of 64"),
        (
            each(events.Tested, lambda e: within(e, tally=Classified(2102, 2000))),
            "accuracy",
            "102 of 2,102 wrong: the task language counts differently in the test",
        ),
        (with_manifest(bytes=10**9), "data", "the bundled text has 2690563"),
        (
            with_manifest(test_examples=9),
            "data",
            "test_examples is 9, but the text and the configuration give 2,102",
        ),
        (
            with_control(size=65),
            "measurements",
            "used windows of 65 bytes; possible sizes are 64, 128",
        ),
        (
            with_control(network="gpt-9x9"),
            "measurements",
            "used the network 'gpt-9x9', which the task does not",
        ),
        (
            with_control(network="gpt-4x128", size=128),
            "measurements",
            "used windows of 128 bytes; possible sizes are 64",
        ),
        (with_control(examples_per_second=9.0), "measurements", "is 9.00 windows/s, but"),
        (
            with_control(steps=10**9, seconds=1.0, examples_per_second=1e9),
            "measurements",
            "is more than AMD EPYC can do",
        ),
    ],
)
def test_what_cannot_be_is_invalid(tmp_path: Path, edit: Any, rule: str, says: str) -> None:
    finding = found(verdict_on(tmp_path, careful(edit(REAL))), rule)
    assert finding.outcome is Outcome.FAILED
    assert says in finding.text


def test_the_smaller_network_is_a_control_that_cannot_be_ranked(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, careful(with_control(network="gpt-4x128")(REAL)))
    assert found(verdict, "measurements").outcome is Outcome.PASSED
    says = found(verdict, "ranked control").text
    assert "the control of rank 1 used gpt-4x128, not GPT-2 small" in says
    says = found(verdict_on(tmp_path / "older", careful(REAL)), "ranked control").text
    assert "the control of rank 1 used windows of 64 bytes, not windows of 1,024 bytes" in says


def test_no_honest_run_is_convicted_because_one_part_is_harder(tmp_path: Path) -> None:
    """The parts of a text follow one another and may be of different kinds."""
    for units in (1, 134_528 * 8 * UNIT):
        verdict = verdict_on(tmp_path / str(units), careful(with_tested(units=units)(REAL)))
        assert found(verdict, "accuracy").outcome is Outcome.PASSED


def test_eight_bits_and_more_are_worth_nothing(tmp_path: Path) -> None:
    """−ln(1) = 0, and never the absolute value of a logarithm above it."""
    for bits in (8, 20):
        path = tmp_path / f"{bits}.jsonl"
        path.write_text(
            "".join(f"{line}\n" for line in careful(with_tested(units=134_528 * bits * UNIT)(REAL)))
        )
        run = replay(read_journal(path))
        found_score = score(run, recount(run).counts)
        assert found_score.quality is not None
        assert (found_score.quality.error, found_score.regulated_score) == (1.0, 0.0)
        assert found_score.ops_per_second > 0
        assert found_score.aiperf1_ops_per_second is None
    assert Predicted(1, 0, 64).floor == 1 / 1024
