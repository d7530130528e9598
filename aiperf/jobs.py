"""Which trial a group is given next: a new one from the search, or one that needs a further attempt.

Everything here follows from the events of the journal in their order, whether they happen now or are
read again: that is how a run is resumed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import astuple, replace
from hashlib import sha256

from aiperf.config import Config
from aiperf.events import Dispatched, Ended, Event, GroupLost, LegBegan
from aiperf.layout import LEAST_BATCH
from aiperf.replay import Replay
from aiperf.trial import HyperParameters, State, Trial
from nas.search import Candidate, Observation, Search

__all__ = ["ATTEMPTS", "Jobs"]

ATTEMPTS = 3  # of one trial: a network that kills its group or its memory is not tried for ever


class Jobs:
    """The search as the master needs it: nothing is handed out twice, nothing that was lost is forgotten."""

    def __init__(self, config: Config, search: Search, replay: Replay) -> None:
        """`replay` is that of the same events; each goes there first and then to `follow`."""
        self.config, self.search, self.replay = config, search, replay
        self._open: dict[int, Dispatched] = {}
        self._again: deque[Dispatched] = deque()
        self._asked: Dispatched | None = None

    @property
    def exhausted(self) -> bool:
        """Whether `next` has nothing more to hand out because of the limit of trials."""
        limit = self.config.limits.max_trials
        return bool(limit) and self.replay.next_number >= limit and not self._again

    def next(self, group: int, num_groups: int) -> Dispatched | None:
        """What to dispatch to a group; it becomes so when it is written. Raises nas.search.Exhausted."""
        if self._again:
            return self._shared_evenly(replace(self._again.popleft(), group=group))
        if self.exhausted:
            return None
        number = self.replay.next_number
        candidate = self.search.ask(number)
        self._asked = _dispatched(self._trial(number, candidate, num_groups), candidate, group)
        return self._asked

    def needed(self) -> frozenset[int]:
        """The trials whose kept weights are still of use, or are just being written."""
        best = self.replay.best
        # Those in flight, too: a group that is lost hands its trials on.
        waiting = {
            job.trial.parent for job in (*self._again, *self._open.values()) if job.trial.parent is not None
        }
        return self.search.alive() | waiting | set(self._open) | ({best.trial.number} if best else set())

    def follow(self, event: Event) -> None:
        """Takes note of an event of the journal."""
        if isinstance(event, Dispatched):
            if event.attempt == 1 and event is not self._asked:
                self.search.dispatched(event.trial.number, event.trial.parent, event.trial.morphisms)
            self._open[event.trial.number] = event
        elif isinstance(event, Ended) and event.trial in self._open:
            self._ended(self._open.pop(event.trial), event)
        elif isinstance(event, (GroupLost, LegBegan)):
            for job in list(self._open.values()):
                if isinstance(event, LegBegan) or job.group == event.group:
                    self._lost(self._open.pop(job.trial.number))

    def _ended(self, job: Dispatched, event: Ended) -> None:
        number = job.trial.number
        smaller = self._with_half_the_batch(job) if event.out_of_memory else None
        observed = event.state is State.COMPLETE and bool(self.replay.trials[number].attempts[-1].curve)
        if observed:  # a validation that ended after the deadline is none
            self.search.tell(self._observation(number))
        elif smaller is not None and job.attempt < ATTEMPTS:
            self._again.append(smaller)
        else:
            self.search.drop(number)

    def _lost(self, job: Dispatched) -> None:
        if job.attempt < ATTEMPTS:
            self._again.append(replace(job, attempt=job.attempt + 1))
        else:
            self.search.drop(job.trial.number)

    def _with_half_the_batch(self, job: Dispatched) -> Dispatched | None:
        """None when that would leave a rank with too few images."""
        ranks, attempt = self._ranks(job.group), job.attempt + 1
        half = job.trial.hyper.batch_size // 2 // ranks * ranks
        return replace(_with_batch(job, half), attempt=attempt) if half >= LEAST_BATCH * ranks else None

    def _shared_evenly(self, job: Dispatched) -> Dispatched:
        """The next larger batch that the ranks of its group share evenly: those of a resumed run differ."""
        ranks = self._ranks(job.group)
        return _with_batch(job, -(-job.trial.hyper.batch_size // ranks) * ranks)

    def _ranks(self, group: int) -> int:
        return len(self.replay.leg.began.groups[group])

    def _observation(self, number: int) -> Observation:
        attempt = self.replay.trials[number].attempts[-1]
        training_images = int(self.replay.ranks[0].ready.data["training_images"])
        return Observation(number, attempt.trial.epochs * training_images, tuple(attempt.curve))

    def _trial(self, number: int, candidate: Candidate, num_groups: int) -> Trial:
        training, round_ = self.config.training, 1 + number // num_groups
        rate = training.learning_rate
        if candidate.parent is not None and training.child_learning_rate:
            rate = training.child_learning_rate
        return Trial(
            number=number,
            parent=candidate.parent,
            morphisms=candidate.morphisms,
            hyper=HyperParameters(
                learning_rate=rate,
                batch_size=training.batch_size,
                momentum=training.momentum,
                weight_decay=training.weight_decay,
                label_smoothing=training.label_smoothing,
            ),
            round=round_,
            epochs=training.epochs[min(round_, len(training.epochs)) - 1],
            seed=int.from_bytes(sha256(f"{self.config.random_seed} {number}".encode()).digest()[:4], "big"),
        )


def _dispatched(trial: Trial, candidate: Candidate, group: int) -> Dispatched:
    graph = candidate.graph
    return Dispatched(
        trial=trial,
        attempt=1,
        group=group,
        graph_key=graph.key,
        forward=astuple(graph.cost.forward),
        backward=astuple(graph.cost.backward),
        evaluate=astuple(graph.cost.evaluate),
        parameters=graph.num_parameters,
    )


def _with_batch(job: Dispatched, batch_size: int) -> Dispatched:
    return replace(job, trial=replace(job.trial, hyper=replace(job.trial.hyper, batch_size=batch_size)))
