"""Second witnesses: what each rank wrote down before it reported it, and the weights that were kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from aiperf.findings import Evidence, Seen
from aiperf.replay import Replay
from aiperf.story import Attempt

__all__ = ["weights", "witnesses"]

Place = tuple[int, int, int]
"""Trial, attempt, segment."""


@dataclass
class _Testimony:
    """What one rank wrote."""

    work: dict[Place, tuple[int, int]] = field(default_factory=dict)
    """Steps and images."""
    answers: dict[Place, tuple[int, int]] = field(default_factory=dict)
    """Right answers, of how many images."""
    damage: str = ""


def witnesses(evidence: Evidence) -> Seen:
    """Each rank's own log agrees with the journal, step by step."""
    if evidence.files is None:
        return Seen("the ranks' own logs are not at hand", known=False)
    found, missing = list[str](), 0
    hosts = {event.ready.rank: event.ready.host for leg in evidence.replay.legs for event in leg.ranks}
    testimonies = {}
    for rank, host in hosts.items():
        path = evidence.files.witness(host, rank)
        if path.exists():
            testimonies[rank] = _read(path)
        else:
            missing += 1
    for rank, testimony in testimonies.items():
        found += [f"rank {rank}: {text}" for text in _against(testimony, rank, evidence.replay)]
    if not testimonies:
        return Seen("the ranks' own logs are not at hand", known=False)
    return Seen(f"{len(testimonies)} ranks wrote the same; {missing} logs are not at hand", found)


def weights(evidence: Evidence) -> Seen:
    """The best network's kept file is the one whose hash was recorded."""
    best = evidence.replay.best
    ended = None if best is None else best.attempts[-1].ended
    if best is None or ended is None or not ended.weights:
        return Seen("no network was kept", known=False)
    path = None if evidence.files is None else evidence.files.weights(best.number)
    if path is None or not path.exists():
        return Seen(f"the weights of trial {best.number} are not at hand", known=False)
    if sha256(path.read_bytes()).hexdigest() != ended.weights:
        return Seen("", [f"{path} is not the file that trial {best.number} left"])
    return Seen(f"the weights of trial {best.number} are those that it left")


def _against(testimony: _Testimony, rank: int, replay: Replay) -> Iterator[str]:
    if testimony.damage:
        yield testimony.damage
        return
    totals, told = replay.totals(), set[Place]()
    for attempt in replay.attempts:
        if rank not in attempt.leg.began.groups[attempt.group]:
            continue
        num_closed = len(attempt.validations)
        for segment in range(num_closed + 1):
            place, at = (attempt.trial.number, attempt.number, segment), totals.first[attempt.index] + segment
            journal = int(totals.steps[at]), int(totals.images[at])
            yield from _difference(place, testimony.work.get(place, (0, 0)), journal, segment < num_closed)
            told.add(place)
        # What follows the last segment may have been written down, and never reported: the end came first.
        told.add((attempt.trial.number, attempt.number, num_closed + 1))
        yield from _answers(testimony, attempt)
    for trial, number, segment in sorted(testimony.work.keys() - told):
        yield f"it worked on trial {trial}, attempt {number}, segment {segment}; the journal does not"


def _difference(place: Place, own: tuple[int, int], journal: tuple[int, int], closed: bool) -> Iterator[str]:
    """What is not closed may have been cut off before it was reported."""
    if own != journal if closed else own[0] < journal[0]:
        yield (
            f"trial {place[0]}, attempt {place[1]}, segment {place[2]}: it wrote {own[0]} steps and {own[1]} "
            f"images, the journal has {journal[0]} and {journal[1]}"
        )


def _answers(testimony: _Testimony, attempt: Attempt) -> Iterator[str]:
    for validation in attempt.validations:
        segment = validation.segment
        own = testimony.answers.get((segment.trial, segment.attempt, segment.index))
        if own is not None and own != (segment.correct, segment.of):
            yield (
                f"trial {segment.trial}, segment {segment.index}: it counted {own[0]} right of {own[1]}, "
                f"the journal has {segment.correct} of {segment.of}"
            )


def _read(path: Path) -> _Testimony:
    """Lines {trial, attempt, segment, steps, images} of blocks, {…, correct, of} of validations."""
    found = _Testimony()
    for number, raw in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
        if not raw.endswith(b"\n"):  # torn when the rank was killed
            break
        try:
            record: dict[str, Any] = json.loads(raw)
            place = int(record["trial"]), int(record["attempt"]), int(record["segment"])
            if "steps" in record:
                steps, images = found.work.get(place, (0, 0))
                found.work[place] = steps + int(record["steps"]), images + int(record["images"])
            else:
                found.answers[place] = int(record["correct"]), int(record["of"])
        except (ValueError, KeyError, TypeError) as error:
            found.damage = f"line {number} of {path} is damaged: {type(error).__name__} {error}"
            break
    return found
