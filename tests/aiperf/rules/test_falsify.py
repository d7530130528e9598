"""A good journal, falsified: `judge` names each falsification.

Each is made twice. *Careless*: lines are edited, added or removed and the chain is left as it was, which
the rule `chain` sees. *Careful*: the forger computes the chain again, and is caught because what he wrote
contradicts something else that is recorded. The last tests show what only a second evaluation of the
kept network (`validate --reevaluate`) or a site's signature catches.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from aiperf.errors import JournalError
from aiperf.files import RunFiles
from aiperf.journal import events
from aiperf.journal.events import (
    Began,
    Closed,
    ControlMeasured,
    Dispatched,
    Ended,
    Event,
    LegEnded,
    Opened,
    Released,
    Stepped,
)
from aiperf.journal.file import chained, read_journal
from aiperf.journal.replay import Replay, replay
from aiperf.rules.ending import Answer
from aiperf.rules.rule import Kind
from aiperf.rules.verdict import Verdict, judge
from aiperf.score.lineage import counted, rebuild
from aiperf.tally import Classified
from nas.morphisms import Widen
from nas.record import graph_from_json, graph_to_json
from nas.seeds import resnet18
from tests.journals import PARTS, Scene, Timed, keeping, part, told, within, write_witnesses

TIMED = told(Scene(minutes=0.25))
VICTIM = 4  # a trial in the middle, with several segments

Edit = Callable[[list[Timed]], list[Timed]]


def each(change: Callable[[Event], Event]) -> Edit:
    """The same change on every line."""
    return lambda timed: [(t, change(event)) for t, event in timed]


def of_trial(event: Event) -> int | None:
    if isinstance(event, Dispatched):
        return event.trial.number
    return part(event).trial if type(event) in PARTS else None


def place_of(kind: type[Event], trial: int | None = None) -> int:
    """Of the first line of that kind, of that trial."""
    return next(
        place
        for place, (_, event) in enumerate(TIMED)
        if isinstance(event, kind) and (trial is None or of_trial(event) == trial)
    )


def with_event(timed: list[Timed], place: int, event: Event) -> list[Timed]:
    return [*timed[:place], (timed[place][0], event), *timed[place + 1 :]]


# The falsifications


def an_operation_count(timed: list[Timed]) -> list[Timed]:
    place = place_of(Dispatched, VICTIM)
    event = timed[place][1]
    assert isinstance(event, Dispatched)
    mac, *others = event.forward
    return with_event(timed, place, replace(event, forward=(mac + 1, *others)))


def all_operation_counts(timed: list[Timed]) -> list[Timed]:
    def doubled(event: Event) -> Event:
        if not isinstance(event, Dispatched):
            return event
        forward, backward = [count * 2 for count in event.forward], [count * 2 for count in event.backward]
        return replace(event, forward=tuple(forward), backward=tuple(backward))

    return each(doubled)(timed)


def an_example_count(timed: list[Timed]) -> list[Timed]:
    place = place_of(Stepped, VICTIM)
    event = timed[place][1]
    assert isinstance(event, Stepped)
    return with_event(timed, place, within(event, examples=event.block.examples * 2))


def image_counts_of_a_trial_everywhere(timed: list[Timed]) -> list[Timed]:
    def doubled(event: Event) -> Event:
        if of_trial(event) == VICTIM and isinstance(event, Stepped):
            return within(event, examples=event.block.examples * 2)
        if of_trial(event) == VICTIM and isinstance(event, Closed):
            segment = event.segment
            return replace(event, segment=replace(segment, train_examples=segment.train_examples * 2))
        return event

    return each(doubled)(timed)


def images_and_batch_of_a_trial_everywhere(timed: list[Timed]) -> list[Timed]:
    def doubled(event: Event) -> Event:
        if of_trial(event) == VICTIM and isinstance(event, Dispatched):
            hyper = replace(event.trial.hyper, batch_size=event.trial.hyper.batch_size * 2)
            return replace(event, trial=replace(event.trial, hyper=hyper))
        return event

    return each(doubled)(image_counts_of_a_trial_everywhere(timed))


def a_step_twice(timed: list[Timed]) -> list[Timed]:
    place = place_of(Stepped, VICTIM)
    return [*timed[: place + 1], timed[place], *timed[place + 1 :]]


def a_step_twice_and_its_segment(timed: list[Timed]) -> list[Timed]:
    """The sums of the segment are corrected too."""
    stepped = timed[place_of(Stepped, VICTIM)][1]
    place = place_of(Closed, VICTIM)
    closed = timed[place][1]
    assert isinstance(stepped, Stepped)
    assert isinstance(closed, Closed)
    block = stepped.block
    segment = replace(
        closed.segment,
        steps=closed.segment.steps + block.steps,
        train_examples=closed.segment.train_examples + block.examples,
        train_seconds=closed.segment.train_seconds + block.seconds,
    )
    return a_step_twice(with_event(timed, place, replace(closed, segment=segment)))


def a_missing_trial(timed: list[Timed]) -> list[Timed]:
    return [(t, event) for t, event in timed if of_trial(event) != VICTIM]


def a_missing_trial_and_new_numbers(timed: list[Timed]) -> list[Timed]:
    """A failed trial would be worth hiding; the later ones move up."""

    def moved(event: Event) -> Event:
        number = of_trial(event)
        if number is None:
            return event
        if isinstance(event, Dispatched):
            parent = event.trial.parent
            later = parent - 1 if parent is not None and parent > VICTIM else parent
            return replace(event, trial=replace(event.trial, number=number - (number > VICTIM), parent=later))
        return within(event, trial=number - (number > VICTIM))

    return each(moved)(a_missing_trial(timed))


def the_clock_backwards(timed: list[Timed]) -> list[Timed]:
    place = place_of(Closed, VICTIM)
    t, event = timed[place]
    return [*timed[:place], (t - 5.0, event), *timed[place + 1 :]]


def a_faster_clock(timed: list[Timed]) -> list[Timed]:
    """The whole run in half its time."""

    def faster(event: Event) -> Event:
        if isinstance(event, (Began, Ended, LegEnded)):
            return replace(event, end=event.end / 2)
        if isinstance(event, Stepped):
            return replace(within(event, seconds=event.block.seconds / 2), end=event.end / 2)
        if isinstance(event, Closed):
            found = event.segment
            halves = replace(
                found,
                train_seconds=found.train_seconds / 2,
                validate_seconds=found.validate_seconds / 2,
            )
            return replace(event, end=event.end / 2, segment=halves)
        if isinstance(event, Released):
            assert event.deadline is not None
            return replace(event, deadline=event.deadline / 2)
        return event

    return [(t / 2, faster(event)) for t, event in timed]


def an_earlier_end(timed: list[Timed]) -> list[Timed]:
    """A shorter span makes a higher rate."""
    place = place_of(LegEnded)
    event = timed[place][1]
    assert isinstance(event, LegEnded)
    return with_event(timed, place, replace(event, end=event.end - 5.0))


def worked(event: Event, factor: float) -> Event:
    """The same work, said to have taken so many times as long."""
    if isinstance(event, Stepped):
        return within(event, seconds=event.block.seconds * factor)
    if isinstance(event, Closed):
        segment = replace(event.segment, train_seconds=event.segment.train_seconds * factor)
        return replace(event, segment=segment)
    return event


def more_work_than_time(timed: list[Timed]) -> list[Timed]:
    """Two trials of one group at once."""
    return each(lambda event: worked(event, 2))(timed)


def an_accuracy_that_makes_another_network_the_best(timed: list[Timed]) -> list[Timed]:
    place = place_of(Closed, VICTIM)
    event = timed[place][1]
    assert isinstance(event, Closed)
    return keeping(with_event(timed, place, within(event, tally=Classified(400, 399))))


def an_accuracy_that_decided_a_tournament(timed: list[Timed]) -> list[Timed]:
    """The first parent is made worse, so that the search would have chosen another one."""

    def worse(event: Event) -> Event:
        if isinstance(event, Closed) and event.segment.trial == first_parent():
            return within(event, tally=Classified(400, 1))
        return event

    return each(worse)(timed)


def first_parent() -> int:
    """The first that won a tournament."""
    parents = [event.trial.parent for _, event in TIMED if isinstance(event, Dispatched)]
    return next(parent for parent in parents if parent)


def more_right_answers_than_images(timed: list[Timed]) -> list[Timed]:
    place = place_of(Closed, VICTIM)
    event = timed[place][1]
    assert isinstance(event, Closed)
    return with_event(timed, place, within(event, tally=Classified(400, 401)))


def fewer_test_images(timed: list[Timed]) -> list[Timed]:
    place = place_of(events.Tested)
    event = timed[place][1]
    assert isinstance(event, events.Tested)
    return with_event(
        timed, place, within(event, tally=replace(event.evaluated.tally, of=event.evaluated.tally.correct))
    )


def a_truncated_middle(timed: list[Timed]) -> list[Timed]:
    return timed[: len(timed) // 3] + timed[len(timed) // 2 :]


def a_foreign_seed(timed: list[Timed]) -> list[Timed]:
    event = timed[0][1]
    assert isinstance(event, Opened)
    return with_event(timed, 0, replace(event, seed_graph=graph_to_json(resnet18((1, 32, 32), 10))))


def a_foreign_graph(timed: list[Timed]) -> list[Timed]:
    """One trial is said to have been a larger architecture, with all that follows from it."""
    place, began = place_of(Dispatched, VICTIM), place_of(Began, VICTIM)
    event, begin = timed[place][1], timed[began][1]
    assert isinstance(event, Dispatched)
    assert isinstance(begin, Began)
    run = Replay()
    for t, earlier in timed:
        run.add(t, earlier)
    seed = graph_from_json(run.opened.seed_graph)
    parent = seed if event.trial.parent is None else rebuild(run, event.trial.parent)
    other = Widen.propose(parent, random.Random(7))
    found = counted(other.apply(parent))
    forged = replace(
        event,
        trial=replace(event.trial, morphisms=(other,)),
        graph_key=found.graph_key,
        forward=found.forward.kinds,
        backward=found.backward.kinds,
        evaluate=found.evaluate.kinds,
        parameters=found.parameters,
    )
    return with_event(with_event(timed, place, forged), began, within(begin, graph_key=found.graph_key))


def a_foreign_graph_in_one_line(timed: list[Timed]) -> list[Timed]:
    place = place_of(Began, VICTIM)
    event = timed[place][1]
    assert isinstance(event, Began)
    return with_event(timed, place, within(event, graph_key="0" * 64))


@dataclass(frozen=True)
class Case:
    edit: Edit
    rule: str
    """The rule that must fail, whatever else does, once the chain is computed again."""
    names: str
    """What its text must contain."""


CASES = [
    Case(an_operation_count, "operations", f"trial {VICTIM}: recorded forward differs from the recount"),
    Case(all_operation_counts, "operations", "trial 0: recorded forward differs from the recount"),
    Case(an_example_count, "steps", f"trial {VICTIM}, segment 0"),
    Case(an_example_count, "examples", f"trial {VICTIM}: "),
    Case(image_counts_of_a_trial_everywhere, "examples", f"trial {VICTIM}: "),
    Case(images_and_batch_of_a_trial_everywhere, "examples", f"trial {VICTIM}: "),
    Case(a_step_twice, "steps", f"trial {VICTIM}, segment 0"),
    Case(a_step_twice_and_its_segment, "examples", f"trial {VICTIM}"),
    Case(a_missing_trial, "lineage", f"in the place of trial {VICTIM}"),
    Case(a_missing_trial_and_new_numbers, "search", "the search proposes"),
    Case(the_clock_backwards, "order", "the clock went backwards"),
    Case(a_faster_clock, "span", "to its deadline; limits.minutes leaves"),
    Case(an_earlier_end, "span", "has the deadline"),
    Case(more_work_than_time, "times", "in the first"),
    Case(
        an_accuracy_that_makes_another_network_the_best, "accuracy", f"best on validation is trial {VICTIM}"
    ),
    Case(an_accuracy_that_decided_a_tournament, "search", "the search proposes"),
    Case(more_right_answers_than_images, "accuracy", f"trial {VICTIM}, segment 0: -1 of 400 wrong"),
    Case(fewer_test_images, "accuracy", "in the test, but the test set has 1197 images"),
    Case(a_truncated_middle, "order", "line "),
    Case(a_foreign_seed, "seed", "is not residual-4-8-16"),
    Case(a_foreign_graph, "search", f"trial {VICTIM}: "),
    Case(
        a_foreign_graph_in_one_line, "operations", f"trial {VICTIM}: the group built a different architecture"
    ),
]


def test_the_good_journal_is_valid(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, careful(TIMED), witnessed=True)
    assert verdict.failed(Kind.INTEGRITY) == []
    assert verdict.valid


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.edit.__name__}-{case.rule}")
def test_a_careful_forger_contradicts_something_else_that_is_recorded(tmp_path: Path, case: Case) -> None:
    verdict = verdict_on(tmp_path, careful(case.edit(TIMED)))
    assert not verdict.valid
    failed = {finding.rule: finding.text for finding in verdict.failed(Kind.INTEGRITY)}
    assert "chain" not in failed
    assert case.names in failed.get(case.rule, f"nothing; failed are {failed}")


@pytest.mark.parametrize("edit", {case.edit: None for case in CASES}, ids=lambda edit: edit.__name__)
def test_a_careless_one_breaks_the_chain(tmp_path: Path, edit: Edit) -> None:
    verdict = verdict_on(tmp_path, careless(edit(TIMED)))
    assert not verdict.valid
    failed = {finding.rule: finding.text for finding in verdict.failed(Kind.INTEGRITY)}
    assert "does not match the hash of the line above it" in failed["chain"]


SHORT = told(Scene(minutes=0.1))
# What a run may lack: a control only costs the class, a missing end or test is an interruption, and a
# validation or an assignment just before the end are the forger's own loss.
MAY_BE_MISSING = (ControlMeasured, LegEnded, events.Tested)


@pytest.mark.parametrize("place", range(3, len(SHORT) - 5, 4))
def test_no_single_line_is_removed_or_written_twice_unnoticed(tmp_path: Path, place: int) -> None:
    removed, doubled = SHORT[:place] + SHORT[place + 1 :], SHORT[: place + 1] + SHORT[place:]
    if not isinstance(SHORT[place][1], MAY_BE_MISSING):
        assert not verdict_on(tmp_path / "removed", careful(removed)).valid, SHORT[place]
    assert not verdict_on(tmp_path / "doubled", careful(doubled)).valid, SHORT[place]


def test_what_is_removed_from_the_end_only_the_ranks_own_logs_know(tmp_path: Path) -> None:
    """A shorter journal is one of a run that was interrupted there; the witnesses wrote on."""
    shorter = TIMED[: 2 * len(TIMED) // 3]
    assert verdict_on(tmp_path / "alone", careful(shorter)).answer is Answer.INCOMPLETE
    verdict = verdict_on(tmp_path / "with logs", careful(shorter), witnessed=True)
    (failed,) = verdict.failed(Kind.INTEGRITY)
    assert failed.rule == "witnesses"


def edited_test_result(timed: list[Timed]) -> list[Timed]:
    place = place_of(events.Tested)
    event = timed[place][1]
    assert isinstance(event, events.Tested)
    return with_event(timed, place, within(event, tally=event.evaluated.tally + Classified(0, 10)))


def edited_accuracy_of_the_last_validation(timed: list[Timed]) -> list[Timed]:
    """Of a trial that was nobody's parent and lost every tournament."""
    place = max(place for place, (_, event) in enumerate(timed) if isinstance(event, Closed))
    event = timed[place][1]
    assert isinstance(event, Closed)
    return keeping(with_event(timed, place, within(event, tally=Classified(400, 1))))


@pytest.mark.parametrize("edit", [edited_test_result, edited_accuracy_of_the_last_validation])
def test_what_only_replay_or_a_signature_catches(tmp_path: Path, edit: Edit) -> None:
    """Nothing that is recorded depends on these. The test result is evaluated again by `--reevaluate`."""
    assert verdict_on(tmp_path, careful(edit(TIMED))).valid


def test_the_ranks_own_logs_catch_an_accuracy_that_nothing_depends_on(tmp_path: Path) -> None:
    timed = edited_accuracy_of_the_last_validation(TIMED)
    (failed,) = verdict_on(tmp_path, careful(timed), witnessed=True).failed(Kind.INTEGRITY)
    assert failed.rule == "witnesses"
    assert "the journal has 399 of 400 wrong" in failed.text


def test_a_seed_that_is_no_graph_is_refused(tmp_path: Path) -> None:
    event = TIMED[0][1]
    assert isinstance(event, Opened)
    forged = with_event(TIMED, 0, replace(event, seed_graph={"input": [1, 32, 32], "nodes": []}))
    with pytest.raises(JournalError, match="the seed graph in the journal's first line is not valid"):
        verdict_on(tmp_path, careful(forged))


# How a forger writes


def careful(timed: list[Timed]) -> list[str]:
    """Computes the chain of what he wrote."""
    return list(chained(timed))


def careless(timed: list[Timed]) -> list[str]:
    """Leaves the chain of each line that he touched as it was, and all other lines as they were."""
    before = dict(zip(map(id, TIMED), chained(TIMED)))
    lines = []
    for place, entry in enumerate(timed):
        (forged,) = chained([entry])
        original = before.get(id(entry), list(before.values())[min(place, len(before) - 1)])
        untouched = id(entry) in before or forged[:-75] == original[:-75]
        lines.append(original if untouched else forged[:-66] + original[-66:])
    return lines


def verdict_on(directory: Path, lines: list[str], witnessed: bool = False) -> Verdict:
    """`witnessed`: the ranks' own logs, of what really happened, lie beside the journal."""
    files = RunFiles(directory)
    directory.mkdir(parents=True, exist_ok=True)
    files.journal.write_text("".join(f"{line}\n" for line in lines))
    if witnessed:
        write_witnesses(files, TIMED)
    return judge(replay(read_journal(files.journal)), files if witnessed else None)
