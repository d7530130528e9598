"""The trials of a run as rows: what each was, where it came from and what became of it."""

from __future__ import annotations

import statistics
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import nsmallest
from math import inf

import numpy as np

from aiperf.config import EAGER
from aiperf.journal.attempts import Attempt
from aiperf.journal.axis import SpanAxis
from aiperf.journal.replay import Replay
from aiperf.score.example_counts import Counted
from aiperf.wire.trial import State
from aiperf.wording import spoken
from analysis.readings.roofline import intensity
from nas.morphisms import Morphism
from nas.ops import OPS


@dataclass(frozen=True, slots=True)  # a long run has a hundred thousand of them
class TrialRow:
    """One trial, by its last attempt."""

    number: int
    """Number of the trial."""
    parent: int | None
    """Number of the parent; None for the seed."""
    morphisms: tuple[str, ...]
    """In words, in their order; none for the seed itself."""
    state: State
    reason: str
    """Why it failed or was stopped; empty for others."""
    error: float | None
    """Lowest validation error."""
    operations: int | None
    """Operations of one training example; None if its architecture was not counted."""
    parameters: int | None
    group: int
    attempts: int
    """Number of attempts: more than one after losses."""
    engine: str
    """Engine that made its steps; empty if none was chosen, or if it has not begun."""
    epochs: int
    """Planned epochs."""
    batch_size: int
    learning_rate: float
    examples: int
    """Examples trained in the last attempt."""
    began: float | None
    """Seconds of the span; None for one that has not begun."""
    ended: float | None
    intensity: float | None = None
    """Tensor operations of a training example per byte that it moves, as `roofline` models it; None if the
    architecture was not rebuilt."""
    falls: Sequence[float] = ()
    """Each fall of its validation error: epochs since its weights were new, and the error from then on, one
    after the other, because pairs would take five times the memory."""

    def epochs_to(self, error: float) -> float | None:
        """Epochs to an error since its weights were new, with those of its ancestors; None if not reached."""
        falls = zip(self.falls[::2], self.falls[1::2])
        return next((epochs for epochs, found in falls if found <= error), None)

    @property
    def origin(self) -> str:
        """The morphisms that made it. A child may have none: then it goes on with its parent's network."""
        return ", ".join(self.morphisms) or ("the seed" if self.parent is None else "trained on")


def rows(replay: Replay, counts: Mapping[int, Counted]) -> list[TrialRow]:
    """The trials as rows, in the order of their numbers."""
    axis, found, curves, trained = SpanAxis(replay.legs), [], _Curves(replay), replay.worked().examples
    for number in sorted(replay.trials):
        story = replay.trials[number]
        attempt, counted = story.attempts[-1], counts.get(number)
        trial, leg = attempt.trial, attempt.leg
        began = None if attempt.began is None else axis.at(leg, attempt.began)
        last = attempt.ended
        if last is None:
            last = max((row.end for row in attempt.rows), default=None)
        found.append(
            TrialRow(
                number=number,
                parent=trial.parent,
                morphisms=_in_words(tuple(map(type, trial.morphisms))),
                state=story.state,
                reason=attempt.reason,
                error=story.error,
                operations=None if counted is None else counted.train_price(OPS),
                parameters=None if counted is None else counted.parameters,
                group=attempt.group,
                attempts=len(story.attempts),
                engine=_engine(attempt),
                epochs=trial.epochs,
                batch_size=trial.hyper.batch_size,
                learning_rate=trial.hyper.learning_rate,
                examples=int(trained[attempt.index]),
                began=began,
                ended=None if began is None or last is None else axis.at(leg, last),
                intensity=None if counted is None else _intensity(replay, attempt, counted),
                falls=curves.falls(number),
            )
        )
    return found


@cache
def _in_words(kinds: tuple[type[Morphism], ...]) -> tuple[str, ...]:
    """Morphisms by name, held once for all trials that have the same kinds."""
    return tuple(spoken(kind.__name__) for kind in kinds)


def _engine(attempt: Attempt) -> str:
    """The engine that made its steps in the end."""
    if attempt.began is None or not attempt.chosen:
        return ""
    return EAGER if attempt.fallback is not None else attempt.engine


def _intensity(replay: Replay, attempt: Attempt, counted: Counted) -> float | None:
    """Tensor operations per byte on a device of its group, each of which has an equal part of the batch."""
    batch_size = attempt.trial.hyper.batch_size / len(attempt.leg.began.groups[attempt.group])
    return intensity(counted, replay.opened.config.training.format, batch_size)


class _Curves:
    """Errors over epochs that are counted on from parent to child, as the weights are carried."""

    def __init__(self, replay: Replay) -> None:
        self._trials = replay.trials
        self._examples = replay.manifest.get("training_examples")
        self._kept: dict[int | None, float] = {None: 0.0}
        """Epochs of the weights that each trial leaves to its children."""

    def falls(self, number: int) -> Sequence[float]:
        """The falls of one trial. Trials must be asked for in the order of their numbers, because a child
        starts from the epochs of its parent."""
        attempt = self._trials[number].attempts[-1]
        done = self._kept.get(attempt.trial.parent, 0.0)
        found = array("d")
        if self._examples:
            lowest, kept = inf, -inf if attempt.unbounded is None else attempt.unbounded
            for examples, error in attempt.curve:
                if kept <= error < lowest:  # a lower one was too late for the group: no network has it
                    lowest = error
                    found.extend((done + examples / self._examples, min(1.0, error)))
        self._kept[number] = found[-2] if found else done
        return found[:]  # without the room that it grew into


def median_error(found: Sequence[TrialRow]) -> float | None:
    """The median of the trials' lowest validation errors, which at least half of them reach."""
    errors = [row.error for row in found if row.error is not None]
    return statistics.median_high(errors) if errors else None


def line_of_descent(found: Mapping[int, TrialRow], number: int) -> list[TrialRow]:
    """The trials from the seed, or from its first child, to this one."""
    line: list[TrialRow] = []
    wanted: int | None = number
    while wanted is not None and wanted in found and len(line) <= len(found):
        line.append(found[wanted])
        wanted = found[wanted].parent
    return line[::-1]


def most_telling(found: Sequence[TrialRow], at_most: int) -> list[TrialRow]:
    """All rows; of more than `at_most`, the best quarter and others at even distances, each with all its
    ancestors, by number."""
    if len(found) <= at_most:
        return list(found)
    by_number = {row.number: row for row in found}
    chosen: dict[int, TrialRow] = {}
    best = nsmallest(at_most // 4, found, key=lambda row: (row.error is None, row.error or 0.0, row.number))
    spread = [found[int(place)] for place in np.linspace(0, len(found) - 1, at_most)]
    for row in [*best, *_far_apart(spread)]:
        line = line_of_descent(by_number, row.number)
        new = [one for one in line if one.number not in chosen]
        if len(chosen) + len(new) <= at_most:
            chosen.update((one.number, one) for one in new)
        elif len(chosen) >= at_most:
            break
    return [chosen[number] for number in sorted(chosen)]


def _far_apart(spread: Sequence[TrialRow]) -> list[TrialRow]:
    """The rows in an order whose every beginning is spread over the whole: by multiples of the golden
    ratio."""
    golden = (5**0.5 - 1) / 2
    order = sorted(range(len(spread)), key=lambda place: (place * golden) % 1)
    return [spread[place] for place in order]
