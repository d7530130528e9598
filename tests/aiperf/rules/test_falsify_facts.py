"""Facts of a good journal, falsified one kind at a time with the chain computed again: each is named.

What test_falsify.py does to trials, images and answers, this does to what stands around them: segments
that were never due, ends, reasons, measurements before the span, manifests, further attempts, the test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from aiperf.config import with_overrides
from aiperf.journal import events
from aiperf.journal.events import (
    CeilingMeasured,
    Closed,
    ControlMeasured,
    Dispatched,
    Ended,
    Event,
    LegBegan,
    LegEnded,
    Opened,
    RankReady,
    Released,
    Stepped,
)
from aiperf.rules.rule import Kind, Outcome
from aiperf.tally import Classified
from aiperf.trial import Segment, State
from aiperf.wire.messages import Rate
from tests.aiperf.rules.test_falsify import TIMED, VICTIM, careful, careless, first_parent, verdict_on, worked
from tests.journals import Scene, Timed, told, within

Edit = Callable[[list[Timed]], list[Timed]]

LONG = told(Scene(minutes=0.25, epochs=100))  # ten validations each
BY_TRIALS = told(Scene(minutes=0, max_trials=8))
TWO_LEGS = told(Scene(minutes=0.25, killed_at=16.0))
OUT_OF_MEMORY = told(Scene(minutes=0.25, out_of_memory=frozenset({2, 5})))


def each(kind: type[Event], change: Callable[[Any], Event]) -> Edit:
    """The same change on every line of a kind."""
    return lambda timed: [(t, change(event) if isinstance(event, kind) else event) for t, event in timed]


def with_config(**overrides: object) -> Edit:
    return each(Opened, lambda e: replace(e, config=with_overrides(e.config, overrides)))


def with_ready(**fields: object) -> Edit:
    return each(RankReady, lambda e: replace(e, ready=replace(e.ready, **fields)))


def with_manifest(**entries: object) -> Edit:
    return each(RankReady, lambda e: replace(e, ready=replace(e.ready, data={**e.ready.data, **entries})))


def with_ceiling(**fields: object) -> Edit:
    return each(CeilingMeasured, lambda e: replace(e, ceiling=replace(e.ceiling, **fields)))


def with_control(**fields: object) -> Edit:
    return each(ControlMeasured, lambda e: replace(e, control=replace(e.control, **fields)))


def with_end(reason: str, earlier_seconds: float) -> Edit:
    return each(LegEnded, lambda e: replace(e, reason=reason, end=e.end - earlier_seconds))


def with_segment(**fields: object) -> Edit:
    return each(Closed, lambda e: replace(e, segment=replace(e.segment, **fields)))


def validations_without_steps(timed: list[Timed]) -> list[Timed]:
    """A validation is credited too: five more of them after the last one of each trial."""
    found: list[Timed] = []
    last: dict[int, Closed] = {}
    for t, event in timed:
        if isinstance(event, Closed):
            last[event.segment.trial] = event
        if isinstance(event, Ended) and event.finished.trial in last:
            closed = last[event.finished.trial]
            for more in range(1, 6):
                empty = replace(
                    closed.segment,
                    index=closed.segment.index + more,
                    steps=0,
                    train_examples=0,
                    train_seconds=0.0,
                    validate_seconds=1e-4,
                )
                found.append((t, Closed(empty, event.end)))
        found.append((t, event))
    return found


def a_validation_after_the_first_block(timed: list[Timed]) -> list[Timed]:
    """The first segment of a trial made two, whose sums are right."""
    place = next(n for n, (_, e) in enumerate(timed) if isinstance(e, Stepped) and e.block.trial == VICTIM)
    t, stepped = timed[place]
    assert isinstance(stepped, Stepped)
    block = stepped.block
    tally = Classified(400, 200)
    first = Segment(VICTIM, block.attempt, 0, block.steps, block.examples, block.seconds, tally, 1e-4)

    def later(event: Event) -> Event:
        if isinstance(event, Stepped) and event.block.trial == VICTIM:
            return within(event, segment=event.block.segment + 1)
        if not isinstance(event, Closed) or event.segment.trial != VICTIM:
            return event
        found = replace(event.segment, index=event.segment.index + 1)
        if found.index == 1:
            found = replace(
                found,
                steps=found.steps - block.steps,
                train_examples=found.train_examples - block.examples,
                train_seconds=found.train_seconds - block.seconds,
            )
        return replace(event, segment=found)

    after = [(moment, later(event)) for moment, event in timed[place + 1 :]]
    return [*timed[: place + 1], (t, Closed(first, stepped.end)), *after]


def a_validation_without_steps(timed: list[Timed]) -> list[Timed]:
    """One more, after the last one of a trial."""
    more = [event for _, event in validations_without_steps(timed) if isinstance(event, Closed)]
    empty = next(event for event in more if event.segment.trial == VICTIM and not event.segment.steps)
    place = next(n for n, (_, e) in enumerate(timed) if isinstance(e, Ended) and e.finished.trial == VICTIM)
    return [*timed[:place], (timed[place][0], empty), *timed[place:]]


def an_early_validation_of_a_trial_that_goes_on(timed: list[Timed]) -> list[Timed]:
    """Cut off before its next one, as a run that was killed."""
    forged = a_validation_after_the_first_block(timed)
    closed = [n for n, (_, e) in enumerate(forged) if isinstance(e, Closed) and e.segment.trial == VICTIM]
    return forged[: closed[1]]


def stopped_trials_that_are_called_complete(timed: list[Timed]) -> list[Timed]:
    """At the deadline, after which the search decides nothing any more."""
    return each(Ended, lambda e: within(e, state=State.COMPLETE, reason=""))(timed)


def another_trial_in_a_further_attempt(timed: list[Timed]) -> list[Timed]:
    def other(event: Dispatched) -> Event:
        trial = replace(event.trial, seed=event.trial.seed + 1)
        return replace(event, trial=trial) if event.attempt > 1 else event

    return each(Dispatched, other)(timed)


def an_attempt_that_nothing_called_for(timed: list[Timed]) -> list[Timed]:
    (job,) = [e for _, e in timed if isinstance(e, Dispatched) and e.trial.number == VICTIM]
    place = next(n for n, (_, e) in enumerate(timed) if isinstance(e, Ended) and e.finished.trial == VICTIM)
    return [*timed[: place + 1], (timed[place][0], replace(job, attempt=2)), *timed[place + 1 :]]


def a_parent_that_still_trains(timed: list[Timed]) -> list[Timed]:
    """The trial that was dispatched just before."""

    def other(event: Dispatched) -> Event:
        found = event.trial
        return replace(event, trial=replace(found, parent=found.number - 1)) if found.parent else event

    return each(Dispatched, other)(timed)


def a_block_before_the_one_above(timed: list[Timed]) -> list[Timed]:
    blocks = [n for n, (_, e) in enumerate(timed) if isinstance(e, Stepped) and e.block.trial == VICTIM]
    t, block = timed[blocks[1]]
    assert isinstance(block, Stepped)
    return [*timed[: blocks[1]], (t, replace(block, end=block.end - 2.0)), *timed[blocks[1] + 1 :]]


def without_a_release(timed: list[Timed]) -> list[Timed]:
    return [entry for entry in timed if not isinstance(entry[1], Released)]


def the_test_before_the_end(timed: list[Timed]) -> list[Timed]:
    """The test images would have been used while the search went on."""
    (test,) = [event for _, event in timed if isinstance(event, events.Tested)]
    rest = [entry for entry in timed if entry[1] is not test]
    place = max(
        n
        for n, (_, e) in enumerate(rest)
        if isinstance(e, Ended) and e.finished.trial == test.evaluated.trial
    )
    return [*rest[: place + 1], (rest[place][0], test), *rest[place + 1 :]]


def a_leg_after_the_test(timed: list[Timed]) -> list[Timed]:
    (began,) = [event for _, event in timed if isinstance(event, LegBegan)]
    return [*timed, (0.0, replace(began, index=1, started="2026-01-02T00:00:00+00:00"))]


def a_ceiling_after_the_release(timed: list[Timed]) -> list[Timed]:
    ceilings = [entry for entry in timed if isinstance(entry[1], CeilingMeasured)]
    rest = [entry for entry in timed if entry not in ceilings]
    place = next(n for n, (_, event) in enumerate(rest) if isinstance(event, Dispatched))
    late = [(rest[place][0], event) for _, event in ceilings]
    return [*rest[: place + 1], *late, *rest[place + 1 :]]


def a_later_release(timed: list[Timed]) -> list[Timed]:
    """A shorter span, by less than any group's work would show."""
    place = next(n for n, (_, e) in enumerate(timed) if isinstance(e, Released))
    moment = timed[place][0] + 0.4
    return timed[:place] + [(max(t, moment), event) for t, event in timed[place:]]


def a_tenth_more_work_than_time(timed: list[Timed]) -> list[Timed]:
    return each(Event, lambda event: worked(event, 1.1))(timed)


def a_learning_rate_of_further_attempts(timed: list[Timed]) -> list[Timed]:
    def other(event: Dispatched) -> Event:
        hyper = replace(event.trial.hyper, learning_rate=0.07)
        return replace(event, trial=replace(event.trial, hyper=hyper)) if event.attempt > 1 else event

    return each(Dispatched, other)(timed)


def the_second_leg_first(timed: list[Timed]) -> list[Timed]:
    def earlier(event: LegBegan) -> Event:
        return replace(event, started="2025-12-31T23:00:00+00:00") if event.index else event

    return each(LegBegan, earlier)(timed)


def a_parent_that_failed(timed: list[Timed]) -> list[Timed]:
    mine = first_parent()
    return each(Ended, lambda e: within(e, state=State.FAILED) if e.finished.trial == mine else e)(timed)


@dataclass(frozen=True)
class Case:
    name: str
    edit: Edit
    rule: str
    """The rule that must fail."""
    says: str
    """What its text must contain."""
    journal: list[Timed] = None  # type: ignore[assignment]

    @property
    def forged(self) -> list[Timed]:
        return self.edit(self.journal or TIMED)


FAST = Rate(2e15, 2e15, 0.01)

CASES = [
    Case("other seed", another_trial_in_a_further_attempt, "lineage", "in attempt 2 differs", OUT_OF_MEMORY),
    Case("one attempt more", an_attempt_that_nothing_called_for, "search", "no reason for attempt 2"),
    Case(
        "other random seeds",
        each(Dispatched, lambda e: replace(e, trial=replace(e.trial, seed=e.trial.seed + 1))),
        "search",
        "the search proposes the random seed",
    ),
    Case("a failed parent", a_parent_that_failed, "lineage", "which had not completed by then"),
    Case("a parent too early", a_parent_that_still_trains, "lineage", "which had not completed by then"),
    Case("a faster block", each(Stepped, lambda e: within(e, seconds=0.1)), "steps", "its blocks took"),
    Case("a block too early", a_block_before_the_one_above, "times", "before the previous one"),
    Case("no time", with_segment(validate_seconds=0.0), "times", "a validation took no time"),
    Case("an end after all", with_end("interrupted", -5.0), "span", "outside the times of its lines"),
    Case("no release", without_a_release, "times", "group 0 worked in leg 0, whose clock never started"),
    Case("one without steps", a_validation_without_steps, "examples", "segment 2: 0 steps, but 40"),
    Case("and it goes on", an_early_validation_of_a_trial_that_goes_on, "examples", "segment 0: 15 steps"),
    Case("called complete", stopped_trials_that_are_called_complete, "examples", "of 80 steps were"),
    Case("validations without steps", validations_without_steps, "examples", "0 steps, but 40 were planned"),
    Case(
        "an early validation",
        a_validation_after_the_first_block,
        "examples",
        f"trial {VICTIM}, segment 0: 15",
    ),
    Case(
        "fewer validations",
        with_config(**{"training.validate_every_examples": 9999}),
        "examples",
        "but 80 were planned",
    ),
    Case("less patience", with_config(**{"training.patience": 1}), "examples", "continued after 1", LONG),
    Case("skipped steps below 0", with_segment(skipped=-1), "examples", "-1 of 40 steps skipped in bf16"),
    Case("skipped steps in bf16", with_segment(skipped=3), "examples", "3 of 40 steps skipped in bf16"),
    Case("ended early", with_end("interrupted", 5.0), "span", "but its work ended at 2"),
    Case("ended early by an error", with_end("error: x", 5.0), "span", "but its work ended at 2"),
    Case("no such limit", with_end("trials", 0.0), "span", "the reason 'trials', which did not apply"),
    Case("no such reason", with_end("because", 0.0), "span", "the reason 'because', which did not apply"),
    Case("no target", with_end("target", 0.0), "span", "'target', which did not apply", BY_TRIALS),
    Case(
        "validated earlier", each(Closed, lambda e: replace(e, end=e.end - 0.3)), "times", "not right after"
    ),
    Case("ends before its work", each(Ended, lambda e: replace(e, end=0.0)), "times", "ended at 0.000 s"),
    Case(
        "other hyper-parameters",
        a_learning_rate_of_further_attempts,
        "search",
        "attempt 2: the",
        OUT_OF_MEMORY,
    ),
    Case(
        "a library",
        each(Opened, lambda e: replace(e, libraries={"optuna": "9"})),
        "search",
        "optuna is recor",
    ),
    Case(
        "control: rate", with_control(examples_per_second=999.0), "measurements", "rank 1 is 999.00 images/s"
    ),
    Case("control: host", with_control(host="node9"), "measurements", "on node9; the rank has NVIDIA H200"),
    Case("ceiling: no format", with_ceiling(format="x"), "measurements", "in x, but training.format is bf16"),
    Case("ceiling: device", with_ceiling(device="T"), "measurements", "is from T on node1"),
    Case(
        "ceiling: format", with_ceiling(format="fp32"), "measurements", "in fp32, but training.format is bf16"
    ),
    Case(
        "ceiling: a fast one",
        with_ceiling(product=FAST),
        "measurements",
        "1.62 times the most that NVIDIA H200 can do",
    ),
    Case("ceiling: a fast copy", with_ceiling(copy=Rate(1.0, 2.0, 0.0)), "measurements", "below the typ"),
    Case(
        "ceiling: another rank", with_ceiling(rank=7), "measurements", "rank 7 has a ceiling, but was never"
    ),
    Case("more work than time", a_tenth_more_work_than_time, "times", "in the first"),
    Case("released later", a_later_release, "times", "before the clock started at", BY_TRIALS),
    Case("ceiling: too late", a_ceiling_after_the_release, "order", "comes after the clock started"),
    Case(
        "a device of another peak", with_ready(device="Tesla T4"), "measurements", "the rank has Tesla T4 on"
    ),
    Case("products not recorded", with_ready(multiplies={}), "precision", "did not record the format"),
    Case(
        "products in another format",
        with_ready(multiplies={"matrix product": "fp32", "convolution": "bf16"}),
        "precision",
        "computed a matrix product in fp32",
    ),
    Case(
        "a format that no rank has",
        with_ready(formats={"fp32": 1e11}),
        "precision",
        "training.format is bf16, which rank 1 on node1 does not support",
    ),
    Case("images in halves", with_manifest(training_examples=200.0), "order", "is 200.0, not a whole number"),
    Case("images in words", with_manifest(training_examples="200"), "order", "is '200', not a whole number"),
    Case("images below zero", with_manifest(test_examples=-1), "order", "is -1, not a whole number"),
    Case(
        "no training images", with_manifest(training_examples=0), "examples", "did not report the number of"
    ),
    Case(
        "fewer to validate",
        with_config(**{"data.validation_examples": 100}),
        "data",
        "400, but 100 is configured",
    ),
    Case(
        "more images",
        with_manifest(training_examples=400),
        "data",
        "800 images are used for training and validation, but the set has 600",
    ),
    Case("made to be generated", with_manifest(synthetic=True), "data", "data.synthetic is True for digits"),
    Case(
        "the test before the end", the_test_before_the_end, "order", "Tested comes before the end of its leg"
    ),
    Case("a leg after the test", a_leg_after_the_test, "order", "LegBegan comes after the test"),
    Case(
        "no test images",
        each(events.Tested, lambda e: within(e, tally=Classified(0, 0))),
        "order",
        "has 0 examples",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_is_named(tmp_path: Path, case: Case) -> None:
    verdict = verdict_on(tmp_path, careful(case.forged))
    assert not verdict.valid
    failed = {finding.rule: finding.text for finding in verdict.failed(Kind.INTEGRITY)}
    assert "chain" not in failed
    assert case.says in failed.get(case.rule, f"nothing; failed are {failed}")
    if case.journal is None:
        careless_ones = verdict_on(tmp_path / "careless", careless(case.forged)).failed(Kind.INTEGRITY)
        assert "chain" in {finding.rule for finding in careless_ones}


def test_legs_that_overlap_cost_the_class(tmp_path: Path) -> None:
    """The clock of an honest host may have been set in between."""
    verdict = verdict_on(tmp_path, careful(the_second_leg_first(TWO_LEGS)))
    (doubt,) = [finding for finding in verdict.unmet if finding.rule == "clocks"]
    assert verdict.valid
    assert "leg 1 began 36" in doubt.text


@pytest.mark.parametrize(
    "journal", [LONG, BY_TRIALS, TWO_LEGS, OUT_OF_MEMORY], ids=["long", "trials", "legs", "memory"]
)
def test_the_journals_that_are_falsified_here_are_good(tmp_path: Path, journal: list[Timed]) -> None:
    assert verdict_on(tmp_path, careful(journal)).failed(Kind.INTEGRITY) == []


def test_without_the_ceilings_the_rule_that_needs_them_is_no_longer_passed(tmp_path: Path) -> None:
    without = [entry for entry in TIMED if not isinstance(entry[1], CeilingMeasured)]
    (found,) = [
        each for each in verdict_on(tmp_path, careful(without)).findings if each.rule == "measurements"
    ]
    assert (found.outcome, found.text[:20]) == (Outcome.UNKNOWN, "a ceiling is missing")


def larger_batches(timed: list[Timed]) -> list[Timed]:
    """Every batch, and all that is told of it, twice as large: as many steps, twice the operations."""

    def twice(event: Event) -> Event:
        if isinstance(event, Opened):
            training = event.config.training
            changes = {
                "training.batch_size": 2 * training.batch_size,
                "training.validate_every_examples": 2 * training.validate_every_examples,
                "training.epochs": [2 * epochs for epochs in training.epochs],
            }
            return replace(event, config=with_overrides(event.config, changes))
        if isinstance(event, Dispatched):
            trial = event.trial
            hyper = replace(trial.hyper, batch_size=2 * trial.hyper.batch_size)
            return replace(event, trial=replace(trial, hyper=hyper, epochs=2 * trial.epochs))
        if isinstance(event, Stepped):
            return within(event, examples=2 * event.block.examples)
        if isinstance(event, Closed):
            segment = event.segment
            return replace(event, segment=replace(segment, train_examples=2 * segment.train_examples))
        return event

    return each(Event, twice)(timed)


def test_all_batches_together_only_the_ranks_own_logs_and_the_devices_know(tmp_path: Path) -> None:
    assert verdict_on(tmp_path / "alone", careful(larger_batches(TIMED))).valid
    verdict = verdict_on(tmp_path / "with logs", careful(larger_batches(TIMED)), witnessed=True)
    assert [finding.rule for finding in verdict.failed(Kind.INTEGRITY)] == ["witnesses"]
