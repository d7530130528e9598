"""Choice of the next trial for a group: a new one, one that continues another, or a further attempt.

Everything here is a function of the events of the journal in their order, whether they happen now or are
read again. So a run can be resumed, and its proposals can be made again to check them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Protocol

from aiperf.config import Config
from aiperf.journal.attempts import Attempt, Leg, TrialStory
from aiperf.journal.events import Dispatched, Ended, Event, GroupLost, LegBegan
from aiperf.proposing.hyper import (
    Losses,
    Memory,
    TrialOutcome,
    configured_point,
    halved,
    hyper_parameters,
    point,
    shared_evenly,
)
from aiperf.proposing.kept_weights import KeptWeights
from aiperf.proposing.proposals import new_search, new_tuner
from aiperf.tasks.registry import task_of
from aiperf.wire.reports import Finished
from aiperf.wire.trial import HyperParameters, State, Trial
from nas.frozen import frozen
from nas.graph import Graph, once
from nas.ops import Ops
from nas.search import SEARCHES, Candidate, Exhausted, Halving, Observation, Search
from nas.tuning import Point, Tuner

ALL_WRONG = 1.0
"""Error that is reported to the tuner for a failed trial: a learning rate that is too high makes trials fail,
and the tuner must learn that."""
ATTEMPTS = 3  # of one trial: a network that kills its group or its memory is not tried for ever


class RunSoFar(Protocol):
    """The part of a replay that `Jobs` reads. Its last event is always the one that `Jobs` is following."""

    trials: dict[int, TrialStory]

    @property
    def leg(self) -> Leg: ...


@frozen
class _Completed:
    """What remains known of a completed trial for the proposal of its children."""

    point: Point
    outcome: TrialOutcome


class Jobs:
    """The search as the master uses it: no trial is dispatched twice, and trials that were lost are
    repeated."""

    def __init__(self, config: Config, search: Search, tuner: Tuner, run: RunSoFar) -> None:
        """`run` is the replay of the same events; each event goes to it first, and then to `follow`."""
        self.config, self.search, self.tuner, self.run = config, search, tuner, run
        self.proposed: Callable[[], object] = _unheard
        """Called after each proposal of the search; a simulated one takes its time there."""
        self._num_trials = 0  # that were dispatched; so it is the number of the next one
        self._grown_rounds = 1  # of those dispatched
        self._in_flight = InFlight()
        self._weights = KeptWeights(search.living)
        self._again: deque[OpenTrial] = deque()
        self._first: FirstCandidates | None = None
        self._asked: OpenTrial | None = None
        self._completed: dict[int | None, _Completed] = {}  # never None, the parent of those without one
        of = max(1, config.data.validation_examples)
        self._losses = Losses(task_of(config.data).tally(of, config.data.size, 0.0).floor)
        self._memory = Memory()
        rungs = len(config.training.epochs) if config.training.schedule == "halving" else 0
        self._halving = Halving(rungs) if rungs else None

    @classmethod
    def of(cls, config: Config, seed: Graph, run: RunSoFar) -> Jobs:
        """Jobs with the search and the tuner that the configuration names. Raises MissingExtra."""
        return cls(config, new_search(config, seed), new_tuner(config), run)

    @property
    def exhausted(self) -> bool:
        """Whether the limit on the number of trials is reached, so that `next` returns None."""
        limit = self.config.limits.max_trials
        return bool(limit) and self._num_trials >= limit and not self._again

    def next(self, group: int) -> Dispatched | None:
        """The trial to dispatch to a group; None if `exhausted`. It counts as dispatched once `follow` sees
        the event. Raises nas.search.Exhausted."""
        if self.exhausted:
            return None
        return self.again(group) or self.propose(self._num_trials, group)

    def again(self, group: int) -> Dispatched | None:
        """The next of the further attempts; None if there are none. It is removed once it is dispatched."""
        if not self._again:
            return None
        job = replace(self._again[0].job, group=group)
        return _with(job, shared_evenly(job.trial.hyper, self._ranks(group)))

    def repeats(self, number: int) -> bool:
        """Whether a trial that ended will be dispatched again, as with half the batch."""
        return any(each.job.trial.number == number for each in self._again)

    def propose(self, number: int, group: int) -> Dispatched:
        """A new trial with that number, for that group. Raises nas.search.Exhausted."""
        promoted = self._halving.promotion(self.search.living) if self._halving else None
        first = self._first.take(number) if self._first else None
        if promoted is not None:
            candidate = self.search.dispatched(number, promoted, ())
        elif first is not None:
            self.search.adopt(number, first)
            candidate = first
        else:
            candidate = self.search.ask(number, self._round(number))
            self.proposed()
        trial = self._trial(number, candidate, group)
        self._asked = OpenTrial.first(trial, candidate.graph, group)
        return self._asked.job

    @property
    def prepared(self) -> bool:
        """Whether the next new trial was proposed before the clock started."""
        return self._first is not None and self._num_trials < self._first.num_proposed

    def prepare(self) -> bool:
        """Proposes the next of the first trials, one for each group; `propose` returns them later. Returns
        False if there is nothing more to prepare.

        It is called before the clock of a leg starts. A leg that continues a run first repeats the trials
        that it lost, and a search of another package is asked once for each trial, so both have none.
        """
        if self._num_trials or self._again or self.config.search.name not in SEARCHES:
            return False
        if self._first is None:
            self._first = FirstCandidates(new_search(self.config, self.search.seed))
        number, most = self._first.num_proposed, len(self.run.leg.began.groups)
        if number >= min(most, self.config.limits.max_trials or most):
            return False
        try:
            self._first.propose(self._round(number))
        except Exhausted:
            return False  # and reported when a trial of that number is wanted
        self.proposed()
        return True

    def needed(self) -> frozenset[int]:
        """The trials whose kept weights a child may still read, or are just being written. To look
        through all trials takes long; `unneeded` keeps track of changes instead."""
        return self.search.alive().union(self._in_flight.numbers())

    def unneeded(self, best: int | None) -> list[int]:
        """The trials that left `needed` since the last call, except the best one."""
        return self._weights.unneeded(best)

    def follow(self, event: Event) -> None:
        """Updates the search with an event of the journal."""
        if isinstance(event, Dispatched):
            self._dispatched(event)
        elif isinstance(event, Ended) and event.finished.trial in self._in_flight:
            self._ended(self._take(event.finished.trial), event.finished)
        elif isinstance(event, (GroupLost, LegBegan)):
            for number in self._in_flight.numbers(event.group if isinstance(event, GroupLost) else None):
                self._lost(self._take(number))

    def _dispatched(self, event: Dispatched) -> None:
        trial = event.trial
        if event.attempt > 1:
            again = next((each for each in self._again if each.job.trial.number == trial.number), None)
            if again is not None:  # otherwise the journal is wrong, which the replay reports
                self._again.remove(again)
                self._put(event, again.graph)
            return
        if self._asked is not None and event is self._asked.job:
            graph = self._asked.graph
        else:
            graph = self.search.dispatched(trial.number, trial.parent, trial.morphisms).graph
        self._put(event, graph)
        self._num_trials += 1
        self._grown_rounds = max(self._grown_rounds, trial.round)
        self.tuner.dispatched(trial.number, self._point(trial))
        if self._halving:
            # Without a morphism it is the same network, trained on.
            self._halving.dispatched(trial.number, None if trial.morphisms else trial.parent)

    def _put(self, job: Dispatched, graph: Graph) -> None:
        self._in_flight.put(OpenTrial(job, graph))
        self._weights.dispatched(job.trial.number, job.trial.parent, job.attempt)

    def _take(self, number: int) -> OpenTrial:
        self._weights.broken_off(number)
        return self._in_flight.take(number)

    def _forget(self, trial: Trial) -> None:
        """Drops the records that no further child will need, now that a trial has ended for good."""
        for each in self._weights.ended(trial.number, trial.parent):
            self._completed.pop(each, None)

    def _ended(self, ended: OpenTrial, told: Finished) -> None:
        number, hyper, ranks = told.trial, ended.job.trial.hyper, self._ranks(ended.job.group)
        smaller = halved(hyper, ranks) if told.out_of_memory else None
        if told.out_of_memory:
            self._memory.ran_out(ended.graph, hyper.batch_size // ranks)
        attempt = self.run.trials[number].attempts[-1]
        # A trial whose validations all ended after the deadline counts as incomplete for the search.
        if told.state is State.COMPLETE and attempt.curve and attempt.best_validation:
            self._complete(number)
            self._forget(ended.job.trial)
        elif smaller is not None and ended.job.attempt < ATTEMPTS:
            again = replace(_with(ended.job, smaller), attempt=ended.job.attempt + 1)
            self._again.append(replace(ended, job=again))
        else:
            if told.state is State.FAILED and not told.out_of_memory:
                trial = ended.job.trial
                loss = self._losses.of(TrialOutcome(ALL_WRONG, trial.epochs), self._outcome_of_parent(trial))
                self.tuner.tell(number, self._point(trial), loss)
            else:
                self.tuner.drop(number)
            self.search.drop(number)
            if self._halving and told.state is State.STOPPED:
                self._halving.stopped(number)
            self._forget(ended.job.trial)

    def _complete(self, number: int) -> None:
        """Tells the tuner, the rungs and the search, in this order, how a trial did."""
        attempt = self.run.trials[number].attempts[-1]
        trial, error, unbounded = attempt.trial, attempt.error, attempt.unbounded
        assert error is not None
        assert unbounded is not None
        trained_with, outcome = self._point(trial), TrialOutcome(error, trial.epochs)
        self.tuner.tell(number, trained_with, self._losses.completed(outcome, self._outcome_of_parent(trial)))
        if self._halving:
            self._halving.tell(number, unbounded)
        self._completed[number] = _Completed(trained_with, outcome)
        self._first = None  # whatever is left of them: the search knows more now
        self.search.tell(self._observation(attempt))

    def _outcome_of_parent(self, trial: Trial) -> TrialOutcome | None:
        parent = self._completed.get(trial.parent)
        return parent.outcome if parent else None

    def _lost(self, lost: OpenTrial) -> None:
        """A trial that was lost is repeated up to ATTEMPTS times, then given up."""
        job = lost.job
        if job.attempt < ATTEMPTS:
            self._again.append(replace(lost, job=replace(job, attempt=job.attempt + 1)))
        else:
            self.tuner.drop(job.trial.number)
            self.search.drop(job.trial.number)
            self._forget(job.trial)

    def _ranks(self, group: int) -> int:
        return len(self.run.leg.began.groups[group])

    def _observation(self, attempt: Attempt) -> Observation:
        schedule = attempt.trial.epochs * int(self.run.leg.ranks[0].ready.data["training_examples"])
        # The last step reads a whole batch, which may extend beyond the last pass over the examples.
        curve = tuple((min(examples, schedule), error) for examples, error in attempt.curve)
        return Observation(attempt.trial.number, schedule, curve)

    def _trial(self, number: int, candidate: Candidate, group: int) -> Trial:
        round_ = self._round(number)
        return Trial(
            number=number,
            parent=candidate.parent,
            morphisms=candidate.morphisms,
            hyper=self._hyper(number, candidate, round_, group),
            round=round_,
            epochs=self._epochs(candidate, round_),
            seed=int.from_bytes(sha256(f"{self.config.random_seed} {number}".encode()).digest()[:4], "big"),
        )

    def _round(self, number: int) -> int:
        """Round of a trial. Where networks grow, it never falls: a resumed leg with more groups would
        otherwise fall back to an earlier round, for whose bounds all grown networks are too large."""
        round_ = 1 + number // len(self.run.leg.began.groups)
        return max(round_, self._grown_rounds) if self.config.search.bounds.growth_rounds else round_

    def _epochs(self, candidate: Candidate, round_: int) -> int:
        """Epochs by round; with halving, those that lead from the parent's rung to the next."""
        epochs = self.config.training.epochs
        if self._halving is None:
            return epochs[min(round_, len(epochs)) - 1]
        if candidate.parent is None or candidate.morphisms:
            return epochs[0]
        rung = self._halving.rung_after(candidate.parent)
        return epochs[rung] - epochs[rung - 1]

    def _hyper(self, number: int, candidate: Candidate, round_: int, group: int) -> HyperParameters:
        """The parent's hyper-parameters; from round `tuning.first_round` on, those of the tuner. The batch is
        bounded by the memory of the devices."""
        training, ranks = self.config.training, self._ranks(group)
        parent = self._completed.get(candidate.parent)
        chosen = parent.point if parent else configured_point(training)
        if candidate.morphisms and round_ >= self.config.tuning.first_round:
            chosen = self.tuner.ask(number, chosen)
        leg, graph = self.run.leg, candidate.graph
        chosen = self._memory.bounded(chosen, graph, training, ranks, leg.least_memory_bytes, leg.kind)
        return hyper_parameters(chosen, training, candidate.parent is not None, ranks)

    def _point(self, trial: Trial) -> Point:
        return point(trial.hyper, self.config.training, trial.parent is not None)


def _unheard() -> None:
    """Nobody wants to know of a proposal."""


def _with(job: Dispatched, hyper: HyperParameters) -> Dispatched:
    return replace(job, trial=replace(job.trial, hyper=hyper))


@once
def _counted(graph: Graph) -> tuple[str, Ops, Ops, Ops, int]:
    """What `Dispatched` records of a graph, in the order of its fields."""
    forward, backward, evaluate = graph.cost.forward, graph.cost.backward, graph.cost.evaluate
    return graph.key, forward, backward, evaluate, graph.num_parameters


class FirstCandidates:
    """The candidates of the first trials of a run, which are proposed before its clock starts, by a second
    search that receives no outcome. The search of the run would make the same ones, in the same order, until
    a trial completes."""

    def __init__(self, search: Search) -> None:
        """`search` is a new one, equal to that of the run."""
        self.num_proposed = 0
        self._search, self._candidates = search, dict[int, Candidate]()

    def propose(self, round_: int) -> None:
        """Proposes the next one, and counts its operations. Raises nas.search.Exhausted."""
        number = self.num_proposed
        self._candidates[number] = candidate = self._search.ask(number, round_)
        _counted(candidate.graph)
        self.num_proposed += 1

    def take(self, number: int) -> Candidate | None:
        """The candidate of the trial with that number; None if it was not proposed here. It is removed."""
        return self._candidates.pop(number, None)


@frozen
class OpenTrial:
    """A trial that was dispatched and has not ended."""

    job: Dispatched
    graph: Graph

    @classmethod
    def first(cls, trial: Trial, graph: Graph, group: int) -> OpenTrial:
        """The first attempt at a trial, by that group."""
        return cls(Dispatched(trial, 1, group, *_counted(graph)), graph)


class InFlight:
    """Open trials by number and by group, each in the order of dispatch."""

    def __init__(self) -> None:
        self._each: dict[int, OpenTrial] = {}
        self._of_group: dict[int, dict[int, None]] = {}

    def __contains__(self, number: int) -> bool:
        return number in self._each

    def numbers(self, group: int | None = None) -> list[int]:
        """Numbers of the open trials of a group, or of all groups."""
        return list(self._each if group is None else self._of_group.get(group, ()))

    def put(self, trial: OpenTrial) -> None:
        number = trial.job.trial.number
        self._each[number] = trial
        self._of_group.setdefault(trial.job.group, {})[number] = None

    def take(self, number: int) -> OpenTrial:
        taken = self._each.pop(number)
        del self._of_group[taken.job.group][number]
        return taken
