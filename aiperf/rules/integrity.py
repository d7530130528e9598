"""Integrity of what was counted: the lines, the architectures, the steps, and the examples of the data."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from aiperf.journal.attempts import Attempt
from aiperf.journal.replay import Replay
from aiperf.rules.rule import Evidence, Inspection, inspection_of, unknown
from aiperf.score.example_counts import Counted, recorded
from aiperf.tasks.task import Examples
from aiperf.wire.trial import State, Trial
from aiperf.wording import counted
from nas.layers import ShapeError
from nas.record import RecordError, graph_from_json

NO_TRIAL = "no trial was dispatched"
"""The answer of rules about trials for a run without any."""


def chain(evidence: Evidence) -> Inspection:
    """Each line has the hash of itself and of the line above it. A line that was changed, added or removed
    breaks the chain at that place; whoever computes all later hashes anew is met by the other rules."""
    broken = evidence.replay.broken
    return Inspection(
        f"{evidence.replay.lines:,} lines, hash chain intact",
        [f"line {line} does not match the hash of the line above it" for line in broken],
    )


def order(evidence: Evidence) -> Inspection:
    """Nothing happens before its cause, twice, or after its end. The faults were found while the journal was
    replayed."""
    faults = evidence.replay.faults
    return Inspection("the lines are in a valid order", [f"line {f.line}: {f.text}" for f in faults])


def lineage(evidence: Evidence) -> Inspection:
    """Trials are numbered without gaps in the order of their dispatch; parents completed before."""
    trials, contradictions = evidence.replay.trials, list(_lineage(evidence.replay))
    return inspection_of(
        trials, NO_TRIAL, f"{counted(len(trials), 'trial')}, numbered without gaps", contradictions
    )


def data(evidence: Evidence) -> Inspection:
    """All ranks saw the configured examples, and a known data set has its known sizes."""
    replay, config, task = evidence.replay, evidence.config.data, evidence.task
    if not any(leg.ranks for leg in replay.counted_legs):
        return unknown("no rank was ready")
    contradictions = [
        f"rank {event.ready.rank} of {event.ready.host} saw different {task.example}s"
        for event in replay.timed_ranks
        if event.ready.data != replay.manifest
    ]
    contradictions += task.data.contradictions(config, replay.manifest)
    text = f"{config.name}, SHA-256 {str(replay.manifest.get('sha256'))[:12]}…"
    if task.data.is_known(replay.manifest):
        return Inspection(text, contradictions)
    own = f"own {task.example}s, whose number cannot be checked"
    return unknown(f"{text}: {own}", contradictions)


def _lineage(replay: Replay) -> Iterator[str]:
    """What is wrong with the numbers of trials, their parents and their further attempts."""
    for place, number in enumerate(replay.trials):
        # The first one is enough: all later ones would be shifted too.
        if number != place:
            yield f"trial {number} is in the place of trial {place}: trials are missing or out of order"
            return
    for attempt in replay.attempts:
        trial, first = attempt.trial, replay.trials[attempt.trial.number].attempts[0].trial
        if trial.parent is not None and not _completed_before(replay, trial.parent, attempt):
            yield f"trial {trial.number} is a child of trial {trial.parent}, which had not completed by then"
        if _identity(trial) != _identity(first):
            yield f"trial {trial.number} in attempt {attempt.number} differs from its first attempt"


def _identity(trial: Trial) -> tuple[object, ...]:
    """What is the same in a further attempt; the batch may have been halved."""
    return trial.parent, trial.morphisms, trial.round, trial.epochs, trial.seed


def _completed_before(replay: Replay, parent: int, child: Attempt) -> bool:
    """Whether the parent had completed when the child was dispatched: in an earlier leg, or at an earlier
    time of this one."""
    story = replay.trials.get(parent)
    if story is None:
        return False
    last = story.attempts[-1]
    ended = last.end_time
    if last.state is not State.COMPLETE or ended is None:
        return False
    return (last.leg.index, ended) <= (child.leg.index, child.dispatch_time)


def seed(evidence: Evidence) -> Inspection:
    """The seed graph is the one that the configuration names, for its examples and classes. A seed from a
    file is no contradiction, but nothing tells whether it is the file that the configuration names."""
    named, task = evidence.config.seed_architecture, evidence.task
    examples = task.examples(evidence.config.data)
    try:
        graph = graph_from_json(evidence.replay.opened.seed_graph)
    except (RecordError, ShapeError) as error:
        return Inspection("", [f"the seed is not a valid graph: {error}"])
    if (reads := Examples.of(graph)) != examples:
        return Inspection("", [f"the seed is for {reads.text}; the data has {examples.text}"])
    if named not in task.seeds:
        return unknown(f"the seed {named} is a file, not one of {', '.join(task.seeds)}")
    if graph != task.seeds[named](examples.input, examples.classes):
        return Inspection("", [f"the seed graph in the journal is not {named}"])
    return Inspection(f"the seed is {named}")


def operations(evidence: Evidence) -> Inspection:
    """Every architecture is recounted from the seed and its morphisms. The recount knows the seed and the
    morphisms only, so a count that was raised in the journal is found."""
    counts = evidence.recount.counts
    contradictions = [f"trial {number}: {why}" for number, why in evidence.recount.failures.items()]
    for attempt in evidence.replay.attempts:
        if (found := counts.get(attempt.trial.number)) is not None:
            contradictions += _differences(attempt, found)
    return inspection_of(
        counts, NO_TRIAL, f"{counted(len(counts), 'architecture')} recounted", contradictions
    )


def _differences(attempt: Attempt, found: Counted) -> Iterator[str]:
    """What the journal states of an architecture that differs from its recount."""
    claimed = recorded(attempt.dispatched)
    for what in ("graph_key", "forward", "backward", "evaluate", "parameters"):
        if getattr(found, what) != getattr(claimed, what):
            yield f"trial {attempt.trial.number}: recorded {what.replace('_', ' ')} differs from the recount"
    if attempt.began is not None and attempt.built_key != found.graph_key:
        yield f"trial {attempt.trial.number}: the group built a different architecture"


def bounds(evidence: Evidence) -> Inspection:
    """Every candidate is within the bounds of the run's own configuration. The bounds are multiples of
    the seed's own size, and may grow by rounds."""
    outside = sorted(evidence.recount.outside)
    contradictions = [f"trial {number} is outside search.bounds" for number in outside]
    counts = evidence.recount.counts
    return inspection_of(counts, NO_TRIAL, "every candidate is within search.bounds", contradictions)


def steps(evidence: Evidence) -> Inspection:
    """The figures of a segment are the sums of its blocks."""
    replay, totals, example = evidence.replay, evidence.replay.totals(), evidence.task.example
    closed, contradictions = replay.validations, []
    place = totals.first[closed.ordered("attempt")] + closed.ordered("segment")
    steps, examples, seconds = totals.steps[place], totals.examples[place], totals.seconds[place]
    others = (steps != closed.ordered("steps")) | (examples != closed.ordered("train_examples"))
    # Both are whole microseconds; the tolerance is for the error of sums of floats.
    stated = closed.ordered("train_seconds")
    alike = np.abs(seconds - stated) <= np.maximum(1e-6 * np.maximum(np.abs(seconds), np.abs(stated)), 1e-6)
    for at in np.flatnonzero(others | ~alike):
        row = closed.row(closed.by_attempt[at])
        contradictions.append(
            f"{replay.name_of(row)}: {row.steps} steps and {row.train_examples} {example}s, "
            f"but its blocks add up to {steps[at]} and {examples[at]}"
            if others[at]
            else f"{replay.name_of(row)}: {row.train_seconds:.6f} s, but its blocks took {seconds[at]:.6f} s"
        )
    text = f"{len(replay.blocks):,} blocks add up to their segments"
    return inspection_of(len(closed), "no segment was closed", text, contradictions)
