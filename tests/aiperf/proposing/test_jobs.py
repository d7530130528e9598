"""Which trial comes next: live, after a failure, after a loss, and read again from the journal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiperf.config import Config, with_overrides
from aiperf.journal.events import Began, Closed, Dispatched, Ended, Event, GroupLost, Opened
from aiperf.journal.replay import Replay
from aiperf.proposing.jobs import ATTEMPTS, InFlight, Jobs, OpenTrial
from aiperf.tasks.images.tally import Classified
from aiperf.tasks.language.tally import UNIT, Predicted
from aiperf.tasks.tally import Tally
from aiperf.wire.reports import NOTHING_KEPT, Finished, Started
from aiperf.wire.trial import Segment, State
from nas.seeds import residual
from nas.tuning import SPACE, Point, Untuned
from tests.aiperf.presets import resolved_preset
from tests.aiperf.rules.forged import one, proposed
from tests.journals import Scene, told
from tests.tables import ComesTo

LEAST = [f"search.bounds.min_{what}" for what in ("operations", "activations", "layers")]
OF_ANY_SIZE = {"search.bounds.growth_rounds": 0, **dict.fromkeys(LEAST, 0.5)}


class Story:
    """Jobs that follow the events of a run of one group, each given to the replay first."""

    def __init__(self, config: Config | None = None, /, **overrides: Any) -> None:
        self.config = config or with_overrides(resolved_preset("digits"), overrides)
        self.replay = Replay()
        self.jobs = Jobs.of(self.config, residual(), self.replay)
        self.tell(*(event for _, event in told(Scene(groups=1))[:3]))  # a rank is ready

    def tell(self, *events: Event) -> None:
        for event in events:
            self.replay.add(0.0, event)
            if not isinstance(event, Opened):
                self.jobs.follow(event)

    def dispatch(self) -> Dispatched:
        job = self.jobs.next(group=0)
        assert job is not None
        self.tell(job)
        return job

    def end(
        self,
        job: Dispatched,
        state: State,
        error: float = 0.1,
        out_of_memory: bool = False,
        tally: Tally | None = None,
        kept: int | None = None,
    ) -> None:
        number, attempt = job.trial.number, job.attempt
        self.tell(Began(Started(number, attempt, job.graph_key, 0.1), 0.0))
        if state is State.COMPLETE:
            tally = tally or Classified(400, round(400 * (1 - error)))
            self.tell(Closed(Segment(number, attempt, 0, 40, 2000, 1.0, tally, 0.1), 0.0))
        self.tell(Ended(Finished(number, attempt, state, "", out_of_memory=out_of_memory, kept=kept), 0.0))

    def play(self, *ends: State | float) -> list[Dispatched]:
        """A trial after the other: a number is the error of one that completes."""
        jobs = []
        for end in ends:
            jobs.append(self.dispatch())
            state, error = (end, 0.1) if isinstance(end, State) else (State.COMPLETE, end)
            self.end(jobs[-1], state, error)
        return jobs


def test_a_trial_that_kept_no_network_in_time_teaches_nothing() -> None:
    """Though its validation is in time in the journal: the group had it after its deadline."""
    story = Story(**OF_ANY_SIZE)
    for number in range(3):
        story.end(
            story.dispatch(), State.COMPLETE, error=0.5 - 0.1 * number, kept=0 if number else NOTHING_KEPT
        )
    assert story.replay.best is story.replay.trials[2]
    assert story.replay.trials[0].error is None
    assert {story.dispatch().trial.parent for _ in range(12)} <= {1, 2}


def test_numbers_follow_one_another_and_rounds_follow_the_groups() -> None:
    story = Story()
    jobs = [story.dispatch() for _ in range(4)]
    found = [(job.trial.number, job.trial.round, bool(job.trial.morphisms)) for job in jobs]
    assert found == [(0, 1, False), (1, 2, True), (2, 3, True), (3, 4, True)]
    assert len({job.graph_key for job in jobs}) == 4


def test_only_completed_trials_become_parents() -> None:
    story = Story()
    story.play(State.COMPLETE, State.FAILED, State.COMPLETE, State.STOPPED)
    assert {job.trial.parent for job in story.play(*[State.FAILED] * 9)} == {0, 2}


@pytest.mark.parametrize("schedule", ["rounds", "halving"])
def test_beyond_the_worst_error_the_better_of_two_texts_is_gone_on_with(schedule: str) -> None:
    """Both are worse than 8 bits a byte, which the score counts as all wrong."""
    story = Story(**OF_ANY_SIZE, **{"training.schedule": schedule, "training.epochs": (1, 3)})
    for bits in (12, 9, 11):
        tally = Predicted(400, 400 * bits * UNIT, 400)
        story.end(story.dispatch(), State.COMPLETE, tally=tally)
    jobs = [story.dispatch() for _ in range(8)]
    if schedule == "halving":
        (promoted,) = [job.trial for job in jobs if not job.trial.morphisms]
        assert promoted.parent == 1
    else:
        parents = {job.trial.parent for job in jobs}
        assert parents == {1, 2}  # of any two the better one


def test_a_child_has_the_childs_learning_rate() -> None:
    story = Story(**{"training.learning_rate": 0.4, "training.child_learning_rate": 0.1})
    trials = [job.trial for job in story.play(*[State.COMPLETE] * 4)]
    rates = [(trial.parent is None, trial.hyper.learning_rate) for trial in trials]
    assert (rates[0], {*rates}) == ((True, 0.4), {(True, 0.4), (False, 0.1)})


def test_out_of_memory_is_tried_again_with_half_the_batch() -> None:
    story = Story()
    first = story.dispatch()
    story.end(first, State.FAILED, out_of_memory=True)
    second = story.dispatch()
    half = first.trial.hyper.batch_size // 2
    assert (second.trial.number, second.attempt, second.trial.hyper.batch_size) == (0, 2, half)
    story.end(second, State.FAILED, out_of_memory=True)
    story.end(story.dispatch(), State.FAILED, out_of_memory=True)
    assert story.dispatch().trial.number == 1  # after ATTEMPTS it is given up
    assert len(story.replay.trials[0].attempts) == ATTEMPTS
    story = Story(**{"training.batch_size": 2})  # which is not halved
    story.end(story.dispatch(), State.FAILED, out_of_memory=True)
    assert story.dispatch().trial.number == 1


def test_trials_of_a_lost_group_are_given_out_again_first_until_they_are_given_up() -> None:
    story = Story()
    lost = [story.dispatch(), story.dispatch()]
    story.tell(GroupLost(0, "killed"))
    again = [story.dispatch(), story.dispatch(), story.dispatch()]
    assert [(job.trial, job.attempt) for job in again[:2]] == [(job.trial, 2) for job in lost]
    assert again[2].trial.number == 2
    for attempt in range(3, ATTEMPTS + 1):
        story.tell(GroupLost(0, "killed"))
        assert [story.dispatch().attempt for _ in again] == [attempt, attempt, attempt - 1]
    story.tell(GroupLost(0, "killed"))
    assert [story.dispatch().trial.number for _ in range(2)] == [2, 3]


def test_the_limit_of_trials_holds() -> None:
    story = Story(**{"limits.max_trials": 2})
    jobs = [story.dispatch(), story.dispatch()]
    assert story.jobs.exhausted
    assert story.jobs.next(0) is None
    story.tell(GroupLost(0, "killed"))
    assert not story.jobs.exhausted  # what was lost is still to be done
    assert story.dispatch().trial == jobs[0].trial


def test_read_again_it_goes_on_as_if_it_had_never_stopped() -> None:
    live = Story()
    live.play(State.COMPLETE, State.COMPLETE, State.FAILED, State.COMPLETE)
    events: list[Event] = []
    again = Story()
    for attempt in live.replay.attempts:
        # The journal's own objects are not the ones that `next` handed out.
        events.append(replace(attempt.dispatched))
        events.append(Began(Started(attempt.trial.number, attempt.number, "", 0.1), 0.0))
        events += [Closed(validation.segment, 0.0) for validation in attempt.validations]
        if attempt.ended is not None:
            events.append(attempt.ending)
    again.tell(*events)
    assert [again.dispatch() for _ in range(5)] == [live.dispatch() for _ in range(5)]


def test_weights_of_living_parents_are_needed() -> None:
    story = Story()
    story.play(0.05, 0.2, 0.2, 0.2, 0.2, 0.2)
    assert story.jobs.needed() == {2, 3, 4, 5}  # 0 and 1 are dead


class Listening(Untuned):
    """Remembers what it hears."""

    def __init__(self) -> None:
        super().__init__(1, SPACE)
        self.heard: list[tuple[int, float]] = []

    def _ended(self, number: int, values: Mapping[str, float], loss: float) -> None:
        self.heard.append((number, loss))


def listened(story: Story) -> Listening:
    story.jobs.tuner = tuner = Listening()
    return tuner


def test_the_tuner_hears_by_how_much_a_trial_is_better_than_its_parent_or_that_it_failed(
    comes_to_what_was_read: ComesTo,
) -> None:
    """In halvings of the error. One without a parent is compared with the seed, one that was stopped says
    nothing, and all are told as finite losses; failures only stop nobody."""

    def heard(*ends: State | float) -> list[tuple[int, float]]:
        story = Story()
        tuner = listened(story)
        story.play(*ends)
        return [(number, round(loss / math.log(2), 4)) for number, loss in tuner.heard]

    comes_to_what_was_read("heard.txt", {"heard": heard, "State": State})


def test_a_trial_is_compared_with_its_parent_even_if_that_one_died_meanwhile() -> None:
    story = Story(**{"search.population": 4})
    tuner = listened(story)
    story.play(0.2, 0.1)
    child = story.dispatch()
    assert child.trial.parent == 1
    while 1 in story.jobs.search.living:
        other = story.dispatch()
        story.end(other, State.COMPLETE, 0.2 if other.trial.parent is None else 0.1)
    story.end(child, State.COMPLETE, 0.1)
    assert tuner.heard[-1] == (2, 0.0)


def test_without_a_seed_to_compare_with_failures_are_worse_than_what_completes() -> None:
    story = Story()
    tuner = listened(story)
    story.play(State.FAILED, State.FAILED, 0.4)
    first, second, third = (loss for _, loss in tuner.heard)
    assert first == second > third == 0.0
    ahead = [story.dispatch() for _ in range(2)]  # of the seed, which has failed
    assert [job.trial.parent for job in ahead] == [None, None]
    story.end(ahead[0], State.COMPLETE, 0.2)
    story.end(ahead[1], State.FAILED)
    worse = math.log(1 / 0.4) - math.log(0.5) / 2  # against the median of those two
    assert tuner.heard[3:] == [(3, pytest.approx(math.log(0.5))), (4, pytest.approx(worse))]


HALVING = {"training.schedule": "halving", "training.epochs": (1, 3, 9), "search.population": 30}


def test_whom_the_end_of_a_leg_stopped_another_goes_on_with() -> None:
    """Once: a rung loses nobody by an interruption, and trains nobody on twice."""
    story = Story(**HALVING)
    story.play(0.3, 0.1, 0.2)
    promoted = story.dispatch()
    assert (promoted.trial.parent, promoted.trial.morphisms) == (1, ())
    story.end(promoted, State.STOPPED)
    again = story.dispatch()
    assert (again.trial.number, again.trial.parent, again.trial.morphisms) == (4, 1, ())
    assert (again.trial.epochs, again.trial.round) == (2, 5)
    story.end(again, State.COMPLETE)
    assert story.dispatch().trial.morphisms  # nobody else is among the best third
    story = Story(**HALVING)
    story.play(0.3, 0.1, 0.2)
    story.end(story.dispatch(), State.FAILED)  # that would happen again
    assert story.dispatch().trial.morphisms


class Doubling(Untuned):
    """Proposes twice the batch, and remembers for whom."""

    def __init__(self) -> None:
        super().__init__(1, SPACE)
        self.asked: list[int] = []

    def ask(self, number: int, start: Point) -> Point:
        self.asked.append(number)
        return replace(start, batch=2.0)


def doubled(overrides: dict[str, object], memory_bytes: int = 10**12) -> tuple[Story, Doubling]:
    story = Story(**{"tuning.first_round": 3} | overrides)
    story.jobs.tuner = tuner = Doubling()
    story.replay.leg.least_memory_bytes = memory_bytes
    return story, tuner


def test_hyper_parameters_are_tuned_from_their_round_on_and_those_of_a_promotion_are_not() -> None:
    story, tuner = doubled(HALVING)
    jobs = story.play(0.3, 0.1, 0.2, 0.2, 0.2)
    assert [(job.trial.round, job.trial.hyper.batch_size) for job in jobs] == [
        *((1, 50), (2, 50), (3, 100)),
        (4, 50),  # goes on with trial 1
        (5, 100),
    ]
    assert jobs[3].trial.parent == 1
    assert tuner.asked == [2, 4]


def test_a_proposed_batch_is_bounded_by_the_memory_that_there_is_and_by_what_ran_out_of_it() -> None:
    story, _ = doubled({}, memory_bytes=1000)
    assert [story.dispatch().trial.hyper.batch_size for _ in range(4)] == [50] * 4
    story, _ = doubled({})
    assert [story.dispatch().trial.hyper.batch_size for _ in range(3)] == [50, 50, 100]
    story.end(story.replay.trials[2].attempts[-1].dispatched, State.FAILED, out_of_memory=True)
    again = story.dispatch()
    assert (again.trial.number, again.trial.hyper.batch_size) == (2, 50)
    later = [story.dispatch() for _ in range(7)]
    assert 50 in {job.trial.hyper.batch_size for job in later}
    sizes = {number: each.graph.num_activations for number, each in story.jobs._in_flight._each.items()}
    assert all((job.trial.hyper.batch_size == 100) is (sizes[job.trial.number] < sizes[2]) for job in later)


def test_what_one_group_has_is_not_what_all_have() -> None:
    """As of group 0, which is as much a group as any other."""
    found, job = InFlight(), one(Dispatched)
    for number, group in ((0, 0), (1, 1), (2, 0)):
        found.put(OpenTrial(replace(proposed(job, number=number), group=group), residual()))
    assert (found.numbers(), found.numbers(0), found.numbers(1)) == ([0, 1, 2], [0, 2], [1])
    assert found.numbers(2) == []
    assert found.take(0).job.group == 0
    assert (found.numbers(), found.numbers(0)) == ([1, 2], [2])
    assert 0 not in found


def test_a_further_attempt_that_stands_in_the_journal_is_not_handed_out_again() -> None:
    live, again = Story(), Story()
    lost = live.dispatch()
    live.tell(GroupLost(0, "killed"))
    second = live.dispatch()
    assert (second.trial.number, second.attempt) == (0, 2)
    again.tell(replace(lost), GroupLost(0, "killed"), replace(second))
    assert again.dispatch().trial.number == live.dispatch().trial.number == 1


def test_the_last_validation_counts_where_a_batch_is_no_part_of_a_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last step reads beyond the last pass; a tournament at that schedule looks at what it led to."""
    story, seen = Story(**{"training.batch_size": 64}), list[Any]()
    monkeypatch.setattr(story.jobs.search, "tell", seen.append)
    job = story.dispatch()
    story.tell(Began(Started(0, 1, job.graph_key, 0.1), 0.0))
    for index, (steps, right) in enumerate([(10, 200), (9, 360)]):  # 6 passes of 200 images
        story.tell(Closed(Segment(0, 1, index, steps, 64 * steps, 1.0, Classified(400, right), 0.1), 0.0))
    story.tell(Ended(Finished(0, 1, State.COMPLETE, ""), 0.0))
    (observation,) = seen
    assert observation.errors == ((640, 0.5), (1200, pytest.approx(0.1)))
    assert observation.error_within(observation.schedule) == pytest.approx(0.1)


# Weights that children may yet read: counted as events come, against all that the run knows


SMALL = with_overrides(resolved_preset("digits"), {"search.population": 3, "training.epochs": [1]})
SMALL_HALVING = with_overrides(SMALL, {"training.schedule": "halving", "training.epochs": [1, 2, 4]})
STATES = {"complete": State.COMPLETE, "stop": State.STOPPED, "fail": State.FAILED, "memory": State.FAILED}
WHATS = ("dispatch", "dispatch", "complete", "complete", "complete", "stop", "fail", "memory", "lose")


def unneeded(story: Story) -> tuple[set[int], frozenset[int]]:
    """What became so, and what is needed, the best network so far included."""
    best = {story.replay.best.number} if story.replay.best else set()
    return set(story.jobs.unneeded(max(best, default=None))), story.jobs.needed() | best


@settings(max_examples=12)
@given(
    moves=st.lists(
        st.tuples(st.sampled_from(WHATS), st.integers(0, 9), st.booleans()), min_size=40, max_size=80
    ),
    config=st.sampled_from([SMALL, SMALL_HALVING]),
)
def test_what_is_kept_is_what_is_needed(moves: list[tuple[str, int, bool]], config: object) -> None:
    story = Story(config)  # type: ignore[arg-type]
    jobs, open_ = story.jobs, list[Dispatched]()
    on_disk = set[int]()
    for what, which, look in moves:
        if what == "dispatch" and len(open_) < 6:
            open_.append(story.dispatch())
        elif what == "lose":
            story.tell(GroupLost(0, "killed"))
            open_.clear()
            story.replay.leg.alive[0] = {1}
        elif open_ and what != "dispatch":
            job = open_.pop(which % len(open_))
            story.end(job, STATES[what], (which + 1) / 20, out_of_memory=what == "memory")
        on_disk |= {job.trial.number for job in open_}  # at any time in flight a file may be written
        if look:
            dropped, needed = unneeded(story)
            assert not needed & dropped
            on_disk -= dropped
            assert on_disk <= needed
    dropped, needed = unneeded(story)
    assert on_disk - dropped == on_disk & needed
    parents = {job.trial.parent for job in open_} - {None}
    assert parents <= jobs._completed.keys() <= jobs.needed()
