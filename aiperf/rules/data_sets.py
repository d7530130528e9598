"""Integrity of the data: all ranks saw the same examples, as many as their data set has."""

from __future__ import annotations

from aiperf.journal.replay import Replay
from aiperf.rules.rule import Evidence, Seen
from aiperf.tasks.registry import task_of


def data(evidence: Evidence) -> Seen:
    """All ranks saw the configured examples, and a known data set has its known sizes."""
    replay, config = evidence.replay, evidence.replay.opened.config.data
    if not any(leg.ranks for leg in replay.legs):
        return Seen("no rank was ready", known=False)
    task = task_of(config)
    contradictions = [
        f"rank {event.ready.rank} of {event.ready.host} saw different {task.example}s"
        for leg in replay.timed_legs
        for event in leg.ranks
        if event.ready.data != replay.manifest
    ]
    contradictions += task.data.contradictions(config, replay.manifest)
    text = f"{config.name}, SHA-256 {str(replay.manifest.get('sha256'))[:12]}…"
    if of_a_known_set(replay):
        return Seen(text, contradictions)
    own = f"own {task.example}s, whose number cannot be checked"
    return Seen(f"{text}: {own}", contradictions, known=False)


def of_a_known_set(replay: Replay) -> bool:
    """Whether the number of examples is known here."""
    return task_of(replay.opened.config.data).data.is_known(replay.manifest)


def has_like_parts(replay: Replay) -> bool:
    """Whether the test is known to be no easier than the validation."""
    return task_of(replay.opened.config.data).data.has_like_parts(replay.manifest)
