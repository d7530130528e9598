"""The trials of a run as rows: what each was, where it came from and what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from aiperf.config import EAGER
from aiperf.journal.attempts import Attempt
from aiperf.journal.axis import SpanAxis
from aiperf.journal.replay import Replay
from aiperf.score.lineage import Counted
from aiperf.trial import State
from aiperf.wording import spoken
from nas.ops import OPS


@dataclass(frozen=True)
class TrialRow:
    """One trial, by its last attempt."""

    number: int
    parent: int | None
    morphisms: tuple[str, ...]
    """In words, in their order; none for the seed itself."""
    state: State
    reason: str
    error: float | None
    """The lowest on validation."""
    operations: int | None
    """OPS of one training example; None where its architecture is not counted."""
    parameters: int | None
    group: int
    attempts: int
    engine: str
    """That made its steps; empty where nothing chose one, or it has not begun."""
    epochs: int
    batch_size: int
    learning_rate: float
    examples: int
    """Trained in the last attempt."""
    began: float | None
    """Seconds of the span; None for one that has not begun."""
    ended: float | None

    @property
    def origin(self) -> str:
        return ", ".join(self.morphisms) or ("the seed" if self.parent is None else "trained on")


def rows(replay: Replay, counts: Mapping[int, Counted]) -> list[TrialRow]:
    """In the order of their numbers."""
    axis = SpanAxis(replay)
    found = []
    for number in sorted(replay.trials):
        story = replay.trials[number]
        attempt, counted = story.attempts[-1], counts.get(number)
        trial, leg = attempt.trial, attempt.leg
        began = None if attempt.began is None else axis.at(leg, attempt.began.end)
        last = attempt.ended.end if attempt.ended else max((v.end for v in attempt.validations), default=None)
        found.append(
            TrialRow(
                number=number,
                parent=trial.parent,
                morphisms=tuple(spoken(type(morphism).__name__) for morphism in trial.morphisms),
                state=story.state,
                reason=attempt.ended.finished.reason if attempt.ended else "",
                error=story.error,
                operations=None if counted is None else counted.train.price(OPS),
                parameters=None if counted is None else counted.parameters,
                group=attempt.group,
                attempts=len(story.attempts),
                engine=_engine(attempt),
                epochs=trial.epochs,
                batch_size=trial.hyper.batch_size,
                learning_rate=trial.hyper.learning_rate,
                examples=attempt.examples,
                began=began,
                ended=None if began is None or last is None else axis.at(leg, last),
            )
        )
    return found


def _engine(attempt: Attempt) -> str:
    if attempt.began is None or not attempt.began.started.chosen:
        return ""
    return EAGER if attempt.fallback is not None else attempt.began.started.engine


def line_of_descent(found: Mapping[int, TrialRow], number: int) -> list[TrialRow]:
    """From the seed, or the first child of it, to this trial."""
    line: list[TrialRow] = []
    wanted: int | None = number
    while wanted is not None and wanted in found and len(line) <= len(found):
        line.append(found[wanted])
        wanted = found[wanted].parent
    return line[::-1]


def most_telling(found: Sequence[TrialRow], at_most: int) -> list[TrialRow]:
    """All; of more, the best quarter and others at even distances, each with all its ancestors, by number."""
    if len(found) <= at_most:
        return list(found)
    by_number = {row.number: row for row in found}
    chosen: dict[int, TrialRow] = {}
    best = sorted(found, key=lambda row: (row.error is None, row.error or 0.0, row.number))
    spread = [found[int(place)] for place in np.linspace(0, len(found) - 1, at_most)]
    for row in [*best[: at_most // 4], *_far_apart(spread)]:
        line = line_of_descent(by_number, row.number)
        new = [one for one in line if one.number not in chosen]
        if len(chosen) + len(new) <= at_most:
            chosen.update((one.number, one) for one in new)
        elif len(chosen) >= at_most:
            break
    return [chosen[number] for number in sorted(chosen)]


def _far_apart(spread: Sequence[TrialRow]) -> list[TrialRow]:
    """In an order of which any beginning is spread over the whole."""
    golden = (5**0.5 - 1) / 2
    order = sorted(range(len(spread)), key=lambda place: (place * golden) % 1)
    return [spread[place] for place in order]
