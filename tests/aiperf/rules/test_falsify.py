"""A good journal, falsified: `judge` names each falsification.

*Careless*: lines are edited, added or removed and the chain is left as it was, which the rule `chain` sees.
*Careful*: the forger computes the chain again, and is caught because what he wrote contradicts something else
that is recorded. The last tests show what only the ranks' own logs, a second evaluation of the kept network
(`validate --reevaluate`) or a site's signature catches. The rows of forgeries.txt are made of the edits here,
so the file is long.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aiperf.config import with_overrides
from aiperf.journal import events
from aiperf.journal.events import (
    Began,
    CeilingMeasured,
    Closed,
    ControlMeasured,
    Dispatched,
    Ended,
    Event,
    GroupLost,
    LegBegan,
    LegEnded,
    Opened,
    RankReady,
    Released,
    Stepped,
)
from aiperf.journal.file import read_journal
from aiperf.journal.replay import replay
from aiperf.journal.run_files import RunFiles
from aiperf.rules import trial_length
from aiperf.rules.ending import Answer
from aiperf.rules.rule import Evidence
from aiperf.rules.verdict import RULES, judge
from aiperf.score.example_counts import counted
from aiperf.score.lineage import rebuild, recount
from aiperf.score.score import score
from aiperf.tasks.images.tally import Classified
from aiperf.wire.reports import Finished, Rate
from aiperf.wire.trial import Segment, State, StepBlock
from nas.morphisms import Widen
from nas.record import graph_from_json, graph_to_json
from nas.seeds import resnet18
from tests.aiperf.rules.forged import (
    LONG,
    NAMES,
    OUT_OF_MEMORY,
    TIMED,
    TWO_LEGS,
    VICTIM,
    Edit,
    changed,
    each,
    failed,
    first,
    found,
    inserted,
    judged,
    of,
    of_trial,
    one,
    places,
    proposed,
    retimed,
    said,
    together,
    until,
    with_config,
    with_end,
    with_hyper,
    without,
    worked,
)
from tests.journals import (
    RELEASE,
    Scene,
    Simulation,
    Timed,
    keeping,
    part,
    replayed,
    told,
    within,
    write_run,
    write_witnesses,
)
from tests.tables import ComesTo

LOST_AT_WORK = told(Scene(minutes=1.0, lost=((1, 30.6),)))
TRIALS = len(places(TIMED, Dispatched))
PARENT = next(
    event.trial.parent for _, event in TIMED if isinstance(event, Dispatched) and event.trial.parent
)
"""The first that won a tournament."""
BLOCK, SEGMENT = one(Stepped, trial=VICTIM).block, one(Closed, trial=VICTIM).segment


class _Impatient(Simulation):
    """A vendor's groups, which drop what does not look well after the first validation."""

    def work(self, group: int, t: float) -> Iterator[Timed]:
        before = -1.0
        while self.assigned[group] and t > before:
            before = t
            for timed in super().work(group, t):
                yield timed
                t = timed[0]

    def attempt(self, job: Dispatched, t: float) -> Iterator[Timed]:
        for timed in super().attempt(job, t):
            yield timed
            if isinstance(timed[1], Closed) and job.trial.number % 2 and timed[0] < 40:
                yield timed[0], Ended(Finished(job.trial.number, job.attempt, State.STOPPED, ""), timed[0])
                return


IMPATIENT = _Impatient(Scene(minutes=2)).run()


# Trials and their work


def all_operation_counts(event: Any) -> Any:
    twice = {name: tuple(2 * n for n in getattr(event, name)) for name in ("forward", "backward")}
    return replace(event, **twice)


def one_more_operation(event: Dispatched) -> Dispatched:
    return replace(event, forward=(event.forward[0] + 1, *event.forward[1:]))


TWICE_THE_IMAGES = together(
    each(Stepped, lambda e: within(e, examples=2 * e.block.examples), VICTIM),
    each(Closed, lambda e: within(e, train_examples=2 * e.segment.train_examples), VICTIM),
)
TWICE_THE_BATCH = each(Dispatched, lambda e: with_hyper(e, batch_size=2 * e.trial.hyper.batch_size), VICTIM)


def a_step_twice(timed: list[Timed]) -> list[Timed]:
    (place, *_) = places(timed, Stepped, VICTIM)
    return inserted(timed, place, timed[place][1])


WITH_ITS_SEGMENT = said(
    Closed,
    VICTIM,
    steps=SEGMENT.steps + BLOCK.steps,
    train_examples=SEGMENT.train_examples + BLOCK.examples,
    train_seconds=SEGMENT.train_seconds + BLOCK.seconds,
)


def a_missing_trial(timed: list[Timed]) -> list[Timed]:
    return [(t, event) for t, event in timed if of_trial(event) != VICTIM]


def a_missing_trial_and_new_numbers(timed: list[Timed]) -> list[Timed]:
    """A failed trial would be worth hiding; the later ones move up."""

    def moved(event: Event) -> Any:
        number = of_trial(event)
        if number is None or number < VICTIM:
            return event
        if isinstance(event, Dispatched):
            parent = event.trial.parent
            return proposed(event, number=number - 1, parent=parent and parent - (parent > VICTIM))
        return within(event, trial=number - 1)

    return each(Event, moved)(a_missing_trial(timed))


def a_foreign_graph(timed: list[Timed]) -> list[Timed]:
    """One trial is said to have been a larger architecture, with all that follows from it."""
    run, event = replayed(timed), one(Dispatched, timed, VICTIM)
    seed, before = graph_from_json(run.opened.seed_graph), event.trial.parent
    parent = seed if before is None else rebuild(run, before)
    other = Widen.propose(parent, random.Random(7))
    counts = counted(other.apply(parent))
    forged = replace(
        proposed(event, morphisms=(other,)),
        graph_key=counts.graph_key,
        forward=counts.forward,
        backward=counts.backward,
        evaluate=counts.evaluate,
        parameters=counts.parameters,
    )
    key = said(Began, VICTIM, graph_key=counts.graph_key)
    return together(first(Dispatched, lambda _: forged, VICTIM), key)(timed)


def an_attempt_that_nothing_called_for(timed: list[Timed]) -> list[Timed]:
    (place,) = places(timed, Ended, VICTIM)
    return inserted(timed, place + 1, replace(one(Dispatched, timed, VICTIM), attempt=2))


def of_further_attempts(change: Callable[[Dispatched], Event]) -> Edit:
    return of(OUT_OF_MEMORY, each(Dispatched, lambda e: change(e) if e.attempt > 1 else e))


def a_parent_that_still_trains(event: Dispatched) -> Event:
    """The trial that was dispatched just before."""
    return proposed(event, parent=event.trial.number - 1) if event.trial.parent else event


# Time


def a_faster_clock(timed: list[Timed]) -> list[Timed]:
    """The whole run in half its time."""

    validations = each(Closed, lambda e: within(e, validate_seconds=e.segment.validate_seconds / 2))
    return [
        (t / 2, retimed(event, lambda t: t / 2)) for t, event in together(worked(0.5), validations)(timed)
    ]


def a_million_times_as_fast(timed: list[Timed]) -> list[Timed]:
    """All that followed the release, but for the test: together more than the data sheet says."""

    def sooner(t: float) -> float:
        return min(t, RELEASE + (t - RELEASE) / 1e6)

    kinds = Released | Closed | Stepped | LegEnded
    return [(sooner(t), retimed(e, sooner) if isinstance(e, kinds) else e) for t, e in timed]


def the_clock_backwards(timed: list[Timed]) -> list[Timed]:
    (place, *_) = places(timed, Closed, VICTIM)
    return [*timed[:place], (timed[place][0] - 5.0, timed[place][1]), *timed[place + 1 :]]


def a_block_before_the_one_above(timed: list[Timed]) -> list[Timed]:
    (_, place, *_) = places(timed, Stepped, VICTIM)
    return changed(timed, place, retimed(timed[place][1], lambda end: end - 2.0))


def a_later_release(timed: list[Timed]) -> list[Timed]:
    """A shorter span, by less than any group's work would show."""
    (place,) = places(timed, Released)
    moment = timed[place][0] + 0.4
    return timed[:place] + [(max(t, moment), event) for t, event in timed[place:]]


# Segments that were never due


def emptied(closed: Closed, index: int) -> Any:
    """One more of the same trial, without any steps."""
    fields = {"steps": 0, "train_examples": 0, "train_seconds": 0.0, "validate_seconds": 1e-4}
    return within(closed, index=index, **fields)


def validations_without_steps(timed: list[Timed], more: int = 5) -> list[Timed]:
    """A validation is credited too: more of them after the last one of a trial."""
    last = timed[places(timed, Closed, VICTIM)[-1]][1]
    assert isinstance(last, Closed)
    (place,) = places(timed, Ended, VICTIM)
    return inserted(timed, place, *(emptied(last, last.segment.index + 1 + n) for n in range(more)))


def a_validation_after_the_first_block(timed: list[Timed], seconds: float = BLOCK.seconds) -> list[Timed]:
    """The first segment of a trial made two, whose sums are right."""
    (place, *_), tally = places(timed, Stepped, VICTIM), Classified(400, 200)
    early = Segment(VICTIM, BLOCK.attempt, 0, BLOCK.steps, BLOCK.examples, seconds, tally, 1e-4)
    rest = {
        "steps": SEGMENT.steps - BLOCK.steps,
        "train_examples": SEGMENT.train_examples - BLOCK.examples,
        "train_seconds": SEGMENT.train_seconds - BLOCK.seconds,
    }
    later = together(
        each(Stepped, lambda e: within(e, segment=e.block.segment + 1), VICTIM),
        first(Closed, lambda e: within(e, **rest), VICTIM),
        each(Closed, lambda e: within(e, index=e.segment.index + 1), VICTIM),
    )
    stepped = timed[place][1]
    assert isinstance(stepped, Stepped)
    closed = Closed(early, stepped.end)
    return [*timed[: place + 1], (timed[place][0], closed), *later(timed[place + 1 :])]


def an_early_validation_of_a_trial_that_goes_on(timed: list[Timed]) -> list[Timed]:
    """Cut off before its next one, as a run that was killed."""
    forged = a_validation_after_the_first_block(timed)
    return forged[: places(forged, Closed, VICTIM)[1]]


def a_step_beyond_the_plan(timed: list[Timed]) -> list[Timed]:
    """After the last validation, so that nothing is credited: what was planned is known all the same."""
    place = places(timed, Closed, VICTIM)[-1]
    closed = timed[place][1]
    assert isinstance(closed, Closed)
    more = Stepped(StepBlock(VICTIM, 1, closed.segment.index + 1, 1, 50, 1e-3, 1.5), closed.end)
    return inserted(timed, place + 1, more)


def the_last_complete_one(**fields: object) -> Edit:
    def edit(timed: list[Timed]) -> list[Timed]:
        ends = [n for n in places(timed, Ended) if part(timed[n][1]).state is State.COMPLETE]
        return changed(timed, ends[-1], within(timed[ends[-1]][1], **fields))

    return edit


def an_end_after_the_loss(timed: list[Timed]) -> list[Timed]:
    """A lost trial with validations is called stopped: its network could be the best one."""
    (place,) = places(timed, GroupLost)
    (lost,) = [a for a in replayed(timed[: place + 1]).attempts if a.abandoned and a.began is not None]
    end = Ended(Finished(lost.trial.number, lost.number, State.STOPPED, ""), timed[place][0])
    return [*timed[: place + 1], (timed[place][0], end), *timed[place + 1 :]]


def a_validation_in_the_middle_of_a_loss(timed: list[Timed]) -> list[Timed]:
    """What a group had done when it was lost is said to have been validated, so that it is credited."""
    (place,) = places(timed, GroupLost)
    run = replayed(timed[: place + 1])
    (lost,) = [a for a in run.attempts if a.abandoned and a.began is not None]
    index, totals, mine = len(lost.validations), run.totals(), lost.trial.number
    at = int(totals.first[lost.index]) + index
    sums = int(totals.steps[at]), int(totals.examples[at]), float(totals.seconds[at])
    assert sums[0]
    segment = Segment(mine, lost.number, index, *sums, Classified(400, 200), 1e-4)
    own = max(part(e).trial == mine and e.end for _, e in timed[:place] if isinstance(e, Stepped))
    return inserted(timed, place, Closed(segment, own + 1e-4))


# The order of the lines


def a_dispatch_before_the_release(timed: list[Timed]) -> list[Timed]:
    """Its preparation would have been out of the span."""
    (place, *_) = places(timed, Dispatched)
    return inserted([*timed[:place], *timed[place + 1 :]], place - 2, timed[place][1])


def a_release_before_all_are_ready(timed: list[Timed]) -> list[Timed]:
    last, (place,) = places(timed, RankReady)[-1], places(timed, Released)
    return inserted([*timed[:last], *timed[last + 1 :]], place, timed[last][1])


def a_ceiling_after_the_release(timed: list[Timed]) -> list[Timed]:
    rest = without(timed, CeilingMeasured)
    ceilings = [event for _, event in timed if isinstance(event, CeilingMeasured)]
    return inserted(rest, places(rest, Dispatched)[0] + 1, *ceilings)


def an_end_before_the_release(timed: list[Timed]) -> list[Timed]:
    (place,) = places(timed, Released)
    return [*timed[: place + 1], (timed[place][0], LegEnded("interrupted", 3.0))]


def the_test_before_the_end(timed: list[Timed]) -> list[Timed]:
    """The test images would have been used while the search went on."""
    test, rest = one(events.Tested, timed), without(timed, events.Tested)
    return inserted(rest, places(rest, Ended, test.evaluated.trial)[-1] + 1, test)


def a_leg_after_the_test(timed: list[Timed]) -> list[Timed]:
    return [*timed, (0.0, replace(one(LegBegan, timed), index=1, started="2026-01-02T00:00:00+00:00"))]


OTHER_SEED = graph_to_json(resnet18((1, 32, 32), 10))
FAST = Rate(2e15, 2e15, 0.01)


def test_a_careful_forger_contradicts_something_else_that_is_recorded(
    comes_to_what_was_read: ComesTo,
) -> None:
    comes_to_what_was_read("forgeries.txt", {**NAMES, **globals()})


def test_every_rule_answers_where_nothing_can_be_built_again_or_no_clock_started() -> None:
    tested, nowhere = one(events.Tested).evaluated.trial, (Widen("nowhere", 8, 1),)
    unbuilt = each(Dispatched, lambda event: proposed(event, morphisms=nowhere), tested)(TIMED)
    for forged in (unbuilt, without(TIMED, Released)):
        verdict = judged(forged)
        assert not verdict.valid
        assert len(verdict.findings) == len(RULES)


@pytest.mark.parametrize(
    "scene",
    [
        Scene(minutes=0.25, epochs=100),
        Scene(minutes=0.2, out_of_memory=frozenset({1, 4})),
        Scene(minutes=0.3, lost=((1, 16.0), (0, 20.0))),
        Scene(minutes=1.0, lost=((1, 30.6),)),
        Scene(minutes=0.4, killed_at=20.0),
        Scene(minutes=0, max_trials=6),
        Scene(minutes=0.2, groups=1, ranks_of_a_group=4),
        Scene(minutes=0.02),
        Scene(minutes=1.5, epochs=25),  # its last segments are half as long
    ],
)
def test_what_can_happen_to_an_honest_run_does_not_make_it_invalid(tmp_path: Path, scene: Scene) -> None:
    assert failed(told(scene), write_run(tmp_path / "run", told(scene))) == {}


@pytest.mark.parametrize(
    "careless",
    [
        lambda lines: lines[:9] + lines[10:],
        lambda lines: lines[:9] + lines[8:],
        lambda lines: [line.replace('"steps":15', '"steps":16') for line in lines],
    ],
    ids=["removed", "doubled", "edited"],
)
def test_a_careless_one_breaks_the_chain(tmp_path: Path, careless: Callable[[list[str]], list[str]]) -> None:
    files = write_run(tmp_path / "run", TIMED)
    files.journal.write_text("".join(careless(files.journal.read_text().splitlines(keepends=True))))
    verdict = judge(replay(read_journal(files.journal)), None)
    assert "does not match the hash of the line above it" in found(verdict, "chain").text
    assert not verdict.valid


def test_no_single_line_is_removed_or_written_twice_unnoticed() -> None:
    """But for what a run may lack: a control only costs the class, a missing end or test is an interruption,
    and a validation or an assignment just before the end are the forger's own loss."""
    short = told(Scene(minutes=0.1))
    for place in range(3, len(short) - 5, 7):
        if not isinstance(short[place][1], ControlMeasured | LegEnded | events.Tested):
            assert not judged(short[:place] + short[place + 1 :]).valid, short[place]
        assert not judged(short[: place + 1] + short[place:]).valid, short[place]


# What honest runs may do


def test_a_validation_that_came_too_late_is_no_better_error() -> None:
    run = replayed(with_config(**{"training.patience": 1})(LONG))
    attempt = next(a for a in run.attempts if a.state is State.COMPLETE and len(a.validations) > 2)
    earlier, later = attempt.validations[:2]
    assert later.segment.error < earlier.segment.error
    del attempt.places[2:]
    run.validations.rows["in_time"][attempt.places[1]] = False
    attempt.kept = None
    seen = trial_length.examples(Evidence(run, recount(run), None, None))  # type: ignore[arg-type]
    assert not [text for text in seen.contradictions if text.startswith(f"trial {attempt.trial.number} ")]


@pytest.mark.parametrize("state", [State.COMPLETE, State.FAILED])
def test_a_target_is_reached_by_the_very_error_of_a_network_that_ended_well(state: State) -> None:
    (end, *_) = places(TIMED, Ended)
    following = next(place for place in places(TIMED, Dispatched) if place > end)
    timed = [*TIMED[:following], (TIMED[following][0] + 1.0, TIMED[following][1])]
    error = next(a.error for a in replayed(timed).attempts if a.ended is not None)
    timed = together(with_config(**{"limits.target_error": error}), said(Ended, state=state))(timed)
    assert ("target_error" in failed(timed).get("span", "")) == (state is State.COMPLETE)


def test_what_another_leg_reached_does_not_stop_this_one_before_it_could_look() -> None:
    """The first leg is killed as it reaches its target; a second one fills its groups, then closes."""
    place, again = places(TWO_LEGS, Ended)[0], places(TWO_LEGS, LegBegan)[-1]
    filled = next(place for place in places(TWO_LEGS, Dispatched) if place > again)
    lost = replace(one(Dispatched, TWO_LEGS, 1), attempt=2)
    second = [*TWO_LEGS[again:filled], (TWO_LEGS[filled][0], lost)]
    timed = [*TWO_LEGS[: place + 1], *((t + 30, e) for t, e in second)]
    (ended,) = [a for a in replayed(timed).attempts if a.ended is not None]
    assert ended.error is not None
    timed = with_config(**{"limits.target_error": ended.error})(timed)
    assert "target_error" not in failed(timed).get("span", "")


@pytest.mark.parametrize("stop", ["interrupted", "killed"])
def test_a_stop_that_is_asked_for_closes_trials_in_any_moment(stop: str) -> None:
    """Long before the deadline; a kill may follow before the leg has ended."""
    longer = together(
        with_config(**{"limits.minutes": 60.0}),
        each(Released, lambda e: replace(e, deadline=e.deadline + 3585.0)),
        with_end("interrupted", 0.0),
    )(until(LegEnded if stop == "killed" else events.Tested))
    assert State.STOPPED in {a.state for a in replayed(longer).attempts}
    assert failed(longer) == {}


def test_a_device_that_comes_after_the_end_has_no_part_in_the_peak() -> None:
    """It would make any speed plausible, or unknown."""
    last = TIMED[places(TIMED, RankReady)[-1]][1]
    assert isinstance(last, RankReady)
    t, other = TIMED[-1][0], within(last, device="NVIDIA GB200")
    runs = [replayed(timed) for timed in (TIMED, [*TIMED, (t, GroupLost(last.group, "silent")), (t, other)])]
    assert runs[1].faults == []
    before, after = (score(run, recount(run).counts).peak_ops_per_second for run in runs)
    assert before == after


# What only the ranks' own logs, replay or a signature catches


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> RunFiles:
    """The ranks' own logs of what really happened."""
    files = RunFiles(tmp_path_factory.mktemp("logs"))
    write_witnesses(files, TIMED)
    return files


def test_what_is_removed_from_the_end_only_the_ranks_own_logs_know(logs: RunFiles) -> None:
    """A shorter journal is one of a run that was interrupted there; the witnesses wrote on."""
    shorter = TIMED[: 2 * len(TIMED) // 3]
    assert judged(shorter).answer is Answer.INCOMPLETE
    assert list(failed(shorter, logs)) == ["witnesses"]


def a_better_last_validation(timed: list[Timed]) -> list[Timed]:
    """A journal with a better last validation of a trial that was nobody's parent and lost every
    tournament."""
    place = places(timed, Closed)[-1]
    return keeping(changed(timed, place, within(timed[place][1], tally=Classified(400, 1))))


def test_what_only_replay_or_a_signature_catches(logs: RunFiles) -> None:
    """Nothing that is recorded depends on these. The test result is evaluated again by `--reevaluate`."""
    assert judged(
        each(events.Tested, lambda e: within(e, tally=e.evaluated.tally + Classified(0, 10)))(TIMED)
    ).valid
    forged = a_better_last_validation(TIMED)
    assert judged(forged).valid
    assert "the journal has 399 of 400 wrong" in failed(forged, logs)["witnesses"]


def test_all_batches_together_only_the_ranks_own_logs_and_the_devices_know(logs: RunFiles) -> None:
    """Every batch, and all that is reported of it, twice as large: as many steps, twice the operations."""

    def opened(event: Opened) -> Event:
        training = event.config.training
        changes = {
            "training.batch_size": 2 * training.batch_size,
            "training.validate_every_examples": 2 * training.validate_every_examples,
            "training.epochs": [2 * epochs for epochs in training.epochs],
        }
        return replace(event, config=with_overrides(event.config, changes))

    def dispatched(event: Dispatched) -> Event:
        larger = with_hyper(event, batch_size=2 * event.trial.hyper.batch_size)
        return proposed(larger, epochs=2 * event.trial.epochs)

    forged = together(
        each(Opened, opened),
        each(Dispatched, dispatched),
        each(Stepped, lambda e: within(e, examples=2 * e.block.examples)),
        each(Closed, lambda e: within(e, train_examples=2 * e.segment.train_examples)),
    )(TIMED)
    assert judged(forged).valid
    assert list(failed(forged, logs)) == ["witnesses"]
