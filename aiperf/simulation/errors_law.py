"""The law by which errors fall with training, as the validations of a run show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from aiperf.journal.replay import Replay
from aiperf.pretending.assumptions import ErrorLaws, Errors
from aiperf.simulation.least_squares import fitted_errors
from aiperf.simulation.speeds import FromRun, NetworkSize
from aiperf.tasks.known import task_of


def errors_of(
    replay: Replay, networks: Mapping[int, NetworkSize], otherwise: ErrorLaws
) -> tuple[Mapping[str, ErrorLaws], tuple[FromRun, ...]]:
    """The law of the run's task, from all its validations. A run says nothing about another task."""
    points = []
    examples: dict[int | None, int] = {None: 0}
    for number, story in sorted(replay.trials.items()):
        attempt, before = story.attempts[-1], examples.get(story.trial.parent, 0)
        best = attempt.best_validation
        examples[number] = before
        for seen, error in attempt.curve:
            if number in networks:
                points.append((before + seen, networks[number].relative, min(1.0, error), number))
            if best is not None and error == best.segment.unbounded and examples[number] == before:
                examples[number] = before + seen
    data = replay.opened.config.data
    task = task_of(data)
    errors: Errors = fitted_errors(points, task.chance(data.classes))
    text = (
        f"floor {errors.floor:.3g}, examples {errors.examples:.3g}, power {errors.power:.3g}, size_power "
        f"{errors.size_power:.3g}, spread {errors.spread:.3g}: least squares over {len(points)} validations"
    )
    return {"errors": replace(otherwise, **{task.name: errors})}, (FromRun(f"errors.{task.name}", text),)
