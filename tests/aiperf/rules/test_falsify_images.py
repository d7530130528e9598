"""Images and answers, falsified: how many there are, of which set, and a test that is too good to be true."""

from __future__ import annotations

from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.aiperf.rules.test_falsify_facts import Edit, each, with_config, with_manifest

from aiperf.journal import events
from aiperf.journal.file import read_journal
from aiperf.known_sets import CIFAR_10, DIGITS, FASHION_MNIST, IMAGENET_1K, KnownSet, known_set
from aiperf.rules.answers import FIVE_SIGMA, chance_of_so_few
from aiperf.rules.rule import Finding, Kind, Outcome
from aiperf.rules.verdict import RunClass, Verdict
from aiperf.tally import Classified
from tests.aiperf.rules.test_falsify import TIMED, careful, verdict_on
from tests.journals import DATA, Timed, within

RECORDED = Path(__file__).parents[2] / "recorded"
OWN: dict[str, object] = {"name": "idx", "sha256": "0" * 64}
"""Images of nobody knows where, in numbers that fit the configuration."""


def found(verdict: Verdict, rule: str) -> Finding:
    (finding,) = [finding for finding in verdict.findings if finding.rule == rule]
    return finding


def test_packed_imagenet_is_known_as_imagenet() -> None:
    manifest = {**IMAGENET_1K.facts({}), "channels": 3, "name": "packed", "packed": {"side": 256}}
    assert known_set(manifest) is IMAGENET_1K
    assert known_set({**manifest, "test_examples": 49_999}) is None


def with_test(of: int, correct: int) -> Edit:
    return each(events.Tested, lambda event: within(event, tally=Classified(of, correct)))


def recorded(run: str) -> list[Timed]:
    """The events of a real run."""
    return [(line.t, line.event) for line in read_journal(RECORDED / run / "journal.jsonl")]


def own(timed: list[Timed]) -> list[Timed]:
    return with_manifest(**OWN)(with_config(**{"data.name": "idx"})(timed))


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
    return lambda timed: with_manifest(**entries)(with_config(**config)(timed))


# Weights that were trained on the test images


def test_a_network_that_learnt_the_test_images_is_found_out(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, careful(with_test(1197, 1197)(TIMED)))
    assert found(verdict, "accuracy").outcome is Outcome.FAILED
    assert "better by more than five standard deviations" in found(verdict, "accuracy").text


def test_on_own_images_that_is_unknown_and_costs_the_rank(tmp_path: Path) -> None:
    """Their test part may be the easier one."""
    verdict = verdict_on(tmp_path, careful(with_test(1197, 1197)(own(TIMED))))
    assert found(verdict, "accuracy").outcome is Outcome.UNKNOWN
    assert found(verdict, "accuracy") in verdict.unmet
    assert verdict.run_class is RunClass.SMOKE


@pytest.mark.parametrize(
    "run",
    sorted(path.parent.name for path in RECORDED.glob("*/journal.jsonl") if path.parent.name != "language"),
)
def test_a_real_run_passes_until_its_test_is_made_perfect(run: str, tmp_path: Path) -> None:
    lines = recorded(run)
    assert found(verdict_on(tmp_path, careful(lines)), "accuracy").outcome is Outcome.PASSED
    of = next(event.evaluated.tally.of for _, event in lines if isinstance(event, events.Tested))
    perfect = verdict_on(tmp_path, careful(with_test(of, of)(lines)))
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


# How many images there are


@pytest.mark.parametrize("times", [2, 100, 10**9])
def test_more_test_images_than_a_known_set_has_are_found_out(tmp_path: Path, times: int) -> None:
    of = 1197 * times
    more = with_manifest(test_examples=of, test_examples_per_class=[116 * times, 122 * times])
    verdict = verdict_on(tmp_path, careful(with_test(of, of - 1)(more(TIMED))))
    assert "test_examples is" in found(verdict, "data").text
    assert found(verdict, "data").outcome is Outcome.FAILED


def test_so_many_images_cannot_be_tested_in_a_second(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, careful(with_test(10**12, 10**12 - 1)(own(TIMED))))
    assert "the test of 0.900000 s did more work" in found(verdict, "speed").text


@pytest.mark.parametrize("known", [CIFAR_10, FASHION_MNIST, IMAGENET_1K], ids=lambda known: known.title)
def test_a_known_set_is_known_by_its_numbers_and_fingerprint(tmp_path: Path, known: KnownSet) -> None:
    assert found(verdict_on(tmp_path, careful(of_known(known)(TIMED))), "data").outcome is Outcome.PASSED
    sizes = [7 * size for size in known.test_examples_per_class]
    more = of_known(known, test_examples=7 * known.test_examples, test_examples_per_class=sizes)
    outcome = found(verdict_on(tmp_path, careful(more(TIMED))), "data").outcome
    # ImageNet's training images may be tested with others, which are not the official ones.
    assert outcome is (Outcome.UNKNOWN if known is IMAGENET_1K else Outcome.FAILED)


def test_a_smaller_training_part_is_no_contradiction(tmp_path: Path) -> None:
    fewer = of_known(CIFAR_10, training_examples=1000, training_examples_per_class=[100, 100])
    timed = with_config(**{"data.training_examples": 1000})(fewer(TIMED))
    assert found(verdict_on(tmp_path, careful(timed)), "data").outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (with_manifest(sha256="0" * 64), "the SHA-256 is not that of scikit-learn's digits"),
        (
            with_manifest(training_examples_per_class=[5, 10]),
            "200 training images do not fit 10 classes of 5 to 10",
        ),
        (
            with_manifest(validation_examples_per_class=[0, 10**9]),
            "400 validation images do not fit 10 classes",
        ),
        (with_manifest(training_examples_per_class=None), "training_examples_per_class is None"),
        (with_manifest(official_training_examples=10**9), "official_training_examples is 1000000000"),
        (
            of_known(CIFAR_10, training_examples=49_000),
            "49400 images are used for training and validation, but the set has 50000",
        ),
    ],
)
def test_a_manifest_agrees_with_itself(tmp_path: Path, edit: Edit, says: str) -> None:
    finding = found(verdict_on(tmp_path, careful(edit(TIMED))), "data")
    assert finding.outcome is Outcome.FAILED
    assert says in finding.text


def test_generated_images_are_counted_by_the_configuration(tmp_path: Path) -> None:
    lines = recorded("groups")
    assert found(verdict_on(tmp_path, careful(lines)), "data").outcome is Outcome.PASSED
    forged = with_manifest(test_examples_per_class=[1, 61])(lines)
    assert "does not fit generated images" in found(verdict_on(tmp_path, careful(forged)), "data").text


def test_a_fingerprint_belongs_to_a_set_and_a_set_to_its_fingerprint() -> None:
    assert known_set(DATA) is DIGITS
    assert known_set({**DATA, **OWN}) is None
    assert known_set({**DATA, "sha256": CIFAR_10.sha256}) is None


def test_own_images_are_not_invalid(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, careful(own(TIMED)))
    assert [finding.rule for finding in verdict.failed(Kind.INTEGRITY)] == []
    assert found(verdict, "data").outcome is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("top5", "text"), [(1198, "1198 top-5 answers are correct in the test"), (0, "0 top-5 answers")]
)
def test_the_five_highest_outputs_hold_the_highest(top5: int, text: str, tmp_path: Path) -> None:
    seen = found(
        verdict_on(tmp_path, careful(each(events.Tested, lambda e: within(e, top5=top5))(TIMED))), "accuracy"
    )
    assert text in seen.text
    assert seen.outcome is Outcome.FAILED


def test_as_many_as_all_may_be_among_the_five_highest(tmp_path: Path) -> None:
    forged = each(events.Tested, lambda event: within(event, top5=1197))(TIMED)
    assert found(verdict_on(tmp_path, careful(forged)), "accuracy").outcome is Outcome.PASSED
