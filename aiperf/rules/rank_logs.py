"""Second witnesses: what each rank wrote down before it reported it, and the weights that were kept."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiperf.files import RunFiles
from aiperf.journal.replay import Replay
from aiperf.rules.rule import Evidence, Seen
from aiperf.trial import Segment
from nas.bounded import file_digest, lines, opened

LONGEST_LINE = 4096
"""Bytes; a line has five or six whole numbers."""
SPARE_BYTES = 16 << 20
"""A log has a shorter line for each line of the journal, and in 16 MiB those of a group that worked on for
days after the master gave it up."""
Place = tuple[int, int, int]
"""Trial, attempt, segment."""


Author = tuple[str, int]
"""Host and rank."""


@dataclass
class _Testimony:
    """What one rank wrote."""

    work: dict[Place, tuple[int, int]] = field(default_factory=dict)
    """Steps, and the images of them that this rank trained on."""
    answers: dict[Place, tuple[int, int]] = field(default_factory=dict)
    """Right answers, of the images that this rank judged."""
    damage: str = ""


def witnesses(evidence: Evidence) -> Seen:
    """Each rank's own log agrees with the journal: in steps by itself, in images with its group."""
    authors = {(e.ready.host, e.ready.rank) for leg in evidence.replay.legs for e in leg.ranks}
    paths = {author: evidence.files.witness(*author) for author in authors} if evidence.files else {}
    found = {author: _read(path) for author, path in paths.items() if _at_hand(path)}
    strangers = list(_strangers(evidence.files, paths.values())) if evidence.files else []
    if not found and not strangers:
        return Seen("the ranks' own logs are not at hand", known=False)
    damage = [testimony.damage for testimony in found.values() if testimony.damage]
    contradictions = damage or strangers + list(_contradictions(evidence.replay, found))
    missing = len(authors) - len(found)
    return Seen(f"{len(found)} ranks wrote the same; {missing} logs are not at hand", contradictions)


def weights(evidence: Evidence) -> Seen:
    """The best network's kept file is the one whose hash was recorded."""
    best = evidence.replay.best
    ended = None if best is None else best.attempts[-1].ended
    if best is None or ended is None or not ended.finished.weights:
        return Seen("no network was kept", known=False)
    path = None if evidence.files is None else evidence.files.weights(best.number)
    if path is None or not _at_hand(path):
        return Seen(f"the weights of trial {best.number} are not at hand", known=False)
    if file_digest(path) != ended.finished.weights:
        return Seen("", [f"{path} is not the file that trial {best.number} left"])
    return Seen(f"the weights of trial {best.number} are those that it left")


def _contradictions(replay: Replay, found: dict[Author, _Testimony]) -> Iterator[str]:
    hosts = [{rank: ready.host for rank, ready in leg.devices.items()} for leg in replay.legs]
    told: dict[Author, set[Place]] = {author: set() for author in found}
    cut_off: set[tuple[int, int]] = set()
    totals = replay.totals()
    for attempt in replay.attempts:
        leg = attempt.leg
        group = [(hosts[leg.index].get(rank, ""), rank) for rank in leg.began.groups[attempt.group]]
        present = {author: found[author] for author in group if author in found}
        num_closed = len(attempt.validations)
        for segment in range(num_closed + 1):
            place, at = (attempt.trial.number, attempt.number, segment), totals.first[attempt.index] + segment
            journal = int(totals.steps[at]), int(totals.images[at])
            for (_, rank), testimony in present.items():
                own = testimony.work.get(place, (0, 0))[0]
                # What is not closed may have been written down and never reported: the end came first.
                if own != journal[0] if segment < num_closed else own < journal[0]:
                    yield f"rank {rank} wrote {own} steps of {_named(place)}; the journal has {journal[0]}"
            if segment < num_closed and len(present) == len(group):
                yield from _sums(attempt.validations[segment].segment, place, journal, present)
        if attempt.ended is None:  # a group that the master gave up may have worked on, unheard
            cut_off.add((attempt.trial.number, attempt.number))
        for author in present:
            told[author] |= {(attempt.trial.number, attempt.number, n) for n in range(num_closed + 2)}
    for author, testimony in found.items():
        for place in sorted(testimony.work.keys() - told[author]):
            if place[:2] in cut_off:
                continue
            yield f"rank {author[1]} worked on {_named(place)}; the journal is silent on that"


def _strangers(files: RunFiles, known: Collection[Path]) -> Iterator[str]:
    """Logs of ranks that worked here, and of which the journal knows nothing."""
    for path in sorted(set(files.witnesses()) - set(known)):
        if _at_hand(path) and _read(path).work:
            yield f"logs/{path.name} is of a rank that worked; the journal has no such rank"


def _sums(
    segment: Segment, place: Place, journal: tuple[int, int], group: dict[Author, _Testimony]
) -> Iterator[str]:
    """What the ranks of a group did together."""
    images = sum(testimony.work.get(place, (0, 0))[1] for testimony in group.values())
    if images != journal[1]:
        yield f"the ranks wrote {images} images of {_named(place)}; the journal has {journal[1]}"
    answers = [testimony.answers[place] for testimony in group.values() if place in testimony.answers]
    correct, of = sum(right for right, _ in answers), sum(of for _, of in answers)
    if (correct, of) != (segment.correct, segment.of):
        yield (
            f"the ranks counted {correct} right of {of} after {_named(place)}; the journal has "
            f"{segment.correct} of {segment.of}"
        )


def _at_hand(path: Path) -> bool:
    """Also for a path that no file can have: a journal names its hosts as it likes."""
    return os.path.isfile(path) and os.access(path, os.R_OK)


def _named(place: Place) -> str:
    return "trial {}, attempt {}, segment {}".format(*place)


def _read(path: Path) -> _Testimony:
    """Lines {trial, attempt, segment, steps, images} of blocks, {…, correct, of} of validations."""
    found = _Testimony()
    journal = RunFiles(path.parents[1]).journal
    most = SPARE_BYTES + (journal.stat().st_size if journal.exists() else 0)
    if (size := path.stat().st_size) > most:
        found.damage = f"logs/{path.name} has {size:,} bytes; beside this journal it has at most {most:,}"
        return found
    with opened(path) as file:
        _fold(lines(file, LONGEST_LINE), found, path.name)
    return found


def _fold(log: Iterable[bytes], found: _Testimony, name: str) -> None:
    for number, raw in enumerate(log, start=1):
        if not raw.endswith(b"\n") and len(raw) <= LONGEST_LINE:  # torn when the rank was killed
            break
        try:
            if len(raw) > LONGEST_LINE:
                raise ValueError(f"it has more than {LONGEST_LINE:,} bytes")
            record: dict[str, Any] = json.loads(raw)
            place = int(record["trial"]), int(record["attempt"]), int(record["segment"])
            if "steps" in record:
                steps, images = found.work.get(place, (0, 0))
                found.work[place] = steps + int(record["steps"]), images + int(record["images"])
            else:
                found.answers[place] = int(record["correct"]), int(record["of"])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            found.damage = f"line {number} of logs/{name} is damaged: {type(error).__name__} {error}"
            break
