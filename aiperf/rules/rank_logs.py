"""Second witnesses: the log that each rank wrote before it reported, and the kept weights. Ranks write them
by `aiperf.training.rank_log`. Whoever changes a figure in the journal must change the logs of all ranks of a
group as well, and the hash that each validation has of them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from aiperf.journal import strict
from aiperf.journal.attempts import Attempt
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.rules.rule import SHOWN, Evidence, Inspection, inspection_of, unknown
from aiperf.tasks.tally import Tally, tally_of
from aiperf.wire.trial import Segment
from aiperf.wording import counted
from nas.bounded import file_digest, lines, opened

LONGEST_LINE = 4096
"""Bytes; a line has five or six whole numbers."""
SPARE_BYTES = 16 << 20
"""A log has a shorter line for each line of the journal; the 16 MiB hold those of a group that worked on for
days after the master gave it up."""
PLACE = ("trial", "attempt", "segment")
"""Keys that every line has."""
OF_STEPS = frozenset({*PLACE, "steps", "examples"})
"""Keys of a line about a block of steps; a line with others is a validation."""

Place = tuple[int, int, int]
"""Trial, attempt, segment."""
Author = tuple[str, int]
"""Host and rank."""


@dataclass
class _Testimony:
    """What one rank wrote."""

    work: dict[Place, tuple[int, int]] = field(default_factory=dict)
    """Steps, and how many of their examples this rank trained on."""
    answers: dict[Place, Tally] = field(default_factory=dict)
    """This rank's tally of a validation."""
    digests: dict[Place, bytes] = field(default_factory=dict)
    """SHA-256 of the log up to the end of the line of each validation."""
    closed: dict[tuple[int, int], int] = field(default_factory=dict)
    """Validations so far, by trial and attempt in the order in which this rank began them."""
    damage: str = ""
    """Why the log cannot be read to its end; empty if it can."""

    def take(self, record: dict[str, int], digest: bytes) -> None:
        """Takes the next line. Raises ValueError if no rank writes such a line: it runs one attempt after the
        other, one segment after the other, and closes each with a validation."""
        if not record.keys() >= set(PLACE):
            raise ValueError(f"its keys are {', '.join(record)}"[:200])
        if any(type(value) is not int or value < 0 for value in record.values()):
            raise ValueError("not all values are whole numbers of at least 0")
        place = record["trial"], record["attempt"], record["segment"]
        rest = {name: value for name, value in record.items() if name not in PLACE}
        tally, attempt = None if record.keys() == OF_STEPS else tally_of(rest), place[:2]
        # The keys of `closed` are in the order of their first line: the last one is the attempt at hand.
        if attempt in self.closed and attempt != next(reversed(self.closed)):
            raise ValueError(f"it goes back to trial {attempt[0]}, attempt {attempt[1]}")
        if place[2] != self.closed.setdefault(attempt, 0):
            raise ValueError(f"it is of segment {place[2]}, but {self.closed[attempt]} is open")
        if tally is None:
            steps, examples = self.work.get(place, (0, 0))
            self.work[place] = steps + record["steps"], examples + record["examples"]
        else:
            self.answers[place], self.digests[place] = tally, digest
            self.closed[attempt] += 1


def witnesses(evidence: Evidence) -> Inspection:
    """Each rank's own log agrees with the journal: in its steps, and with its group in examples and hash.

    A missing log is not a contradiction. Every rank creates its file before it reports that it is ready, but
    a file can be lost afterwards: if its host did not hand it over at the end or was cleaned between two
    legs, or if the directory was copied without it. A host that dies loses the last lines. So the answer is
    "unknown" and names the rank: the run is still valid, but not ranked.
    """
    authors = {(e.ready.host, e.ready.rank) for leg in evidence.replay.legs for e in leg.ranks}
    paths = {author: evidence.files.witness(*author) for author in authors} if evidence.files else {}
    found = {author: _read(path) for author, path in paths.items() if _at_hand(path)}
    strangers = list(_strangers(evidence.files, paths.values())) if evidence.files else []
    if not found and not strangers:
        return unknown("the rank logs are missing")
    damage = [testimony.damage for testimony in found.values() if testimony.damage]
    gaps = set[Author]()
    contradictions = damage or strangers + list(_contradictions(evidence, found, gaps))
    hashed = evidence.replay.validations.logs.known
    at = "each validation" if hashed.all() else f"{hashed.sum()} of {len(hashed)} validations"
    same = f"{counted(len(found), 'rank log')} agree{'s' * (len(found) == 1)} with the journal"
    same += f" and with the hash of {at}" if hashed.any() else ""
    if missing := sorted((authors - found.keys()) | gaps, key=lambda author: author[1]):
        shown = ", ".join(f"rank {rank} on {host}" for host, rank in missing[:SHOWN])
        more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        return unknown(f"{same}; missing or incomplete: {shown}{more}", contradictions)
    text = f"{same}; none missing"
    if hashed.any() and not hashed.all():  # some were removed
        return unknown(text, contradictions)
    return inspection_of(len(evidence.replay.blocks), "no training step was run", text, contradictions)


def weights(evidence: Evidence) -> Inspection:
    """The hash of the best network's weights file is the recorded one. The file is read, not the network:
    `validate --reevaluate` does that."""
    best = evidence.replay.best
    recorded = "" if best is None else best.attempts[-1].weights
    if best is None or not recorded:
        return unknown("no weights were kept")
    path = None if evidence.files is None else evidence.files.weights(best.number)
    if path is None or not _at_hand(path):
        return unknown(f"the weights of trial {best.number} are missing")
    if file_digest(path) != recorded:
        return Inspection("", [f"{path} is not the file that trial {best.number} wrote"])
    return Inspection(f"the weights of trial {best.number} have the recorded hash")


def _contradictions(evidence: Evidence, found: dict[Author, _Testimony], gaps: set[Author]) -> Iterator[str]:
    """`gaps` receives the ranks whose logs lack lines that may have been lost."""
    replay, lost = evidence.replay, _lost(evidence.replay, found)
    told: dict[Author, set[Place]] = {author: set() for author in found}
    cut_off: set[tuple[int, int]] = set()
    totals, example = replay.totals(), evidence.task.example
    for attempt in replay.attempts:
        group = _group(attempt)
        present = {author: found[author] for author in group if author in found}
        validations, num_closed = attempt.validations, attempt.num_closed
        for segment in range(num_closed + 1):  # the last one is open: nobody is credited with its steps
            place, at = (attempt.trial.number, attempt.number, segment), totals.first[attempt.index] + segment
            journal = int(totals.steps[at]), int(totals.examples[at])
            whole = len(present) == len(group)
            for author, testimony in present.items():
                rank, own = author[1], testimony.work.get(place, (0, 0))[0]
                unanswered = segment < num_closed and place not in testimony.answers
                if (attempt.index, author) in lost and (own < journal[0] or unanswered):
                    gaps.add(author)
                    whole = False
                    continue
                # Steps of an open segment may have been logged but not reported before the end.
                if own != journal[0] if segment < num_closed else own < journal[0]:
                    yield f"rank {rank} wrote {own} steps of {_named(place)}; the journal has {journal[0]}"
                else:
                    yield from _uneven(testimony, place, attempt, rank, len(group), example)
            # Sums and the hash are over all ranks of the group, so one gap leaves nothing to compare.
            if segment < num_closed and whole:
                validation = validations[segment]
                yield from _sums(validation.segment, place, journal, present, example)
                digests = b"".join(testimony.digests.get(place, b"") for testimony in present.values())
                if validation.logs and sha256(digests).hexdigest() != validation.logs:
                    yield f"the logs were changed after {_named(place)}: their hash is not the recorded one"
        if attempt.ended is None:  # a group that the master gave up may have worked on
            cut_off.add((attempt.trial.number, attempt.number))
        for author in present:
            # A rank may close the open segment and begin the next before the master hears of either.
            told[author] |= {(attempt.trial.number, attempt.number, n) for n in range(num_closed + 2)}
    for author in sorted(found):  # so that the first of several is the same in each call
        for place in sorted(found[author].work.keys() - told[author]):
            if place[:2] in cut_off:
                continue
            yield f"rank {author[1]} worked on {_named(place)}; the journal has no record of it"


def _group(attempt: Attempt) -> list[Author]:
    """Host and number of each rank that trained an attempt; an empty host for a rank that never was ready."""
    devices = attempt.leg.devices
    return [(devices[rank].host if rank in devices else "", rank) for rank in attempt.ranks]


def _lost(replay: Replay, found: dict[Author, _Testimony]) -> set[tuple[int, Author]]:
    """What a log may lack, by attempt and rank: a leg of which it has no line, and the last lines before its
    group was lost or its leg was killed."""
    named = [(attempt, (attempt.trial.number, attempt.number)) for attempt in replay.attempts]
    present = [
        (attempt, author, name in found[author].closed)
        for attempt, name in named
        for author in _group(attempt)
        if author in found
    ]
    wrote = {(attempt.leg.index, author) for attempt, author, written in present if written}
    lost = set[tuple[int, Author]]()
    # A leg or a group may also die between two trials, when no attempt is open.
    at_the_end = {(attempt.leg.index, author) for attempt, author, _ in present if attempt.leg.ended is None}
    died = {(leg.index, loss.group) for leg in replay.legs for loss in leg.losses}
    # From the last attempt backwards: a death takes the lines that the rank would have written last, as far
    # back as the attempt of which it did write one.
    for attempt, author, written in reversed(present):
        place = attempt.leg.index, author
        if attempt.ended is None and (
            attempt.began is not None or (attempt.leg.index, attempt.group) in died
        ):
            at_the_end.add(place)
        if place in at_the_end or place not in wrote:
            lost.add((attempt.index, author))
        if written:
            at_the_end.discard(place)
    return lost


def _strangers(files: RunFiles, known: Collection[Path]) -> Iterator[str]:
    """Logs of ranks that worked here but are not in the journal."""
    for path in sorted(set(files.witnesses()) - set(known)):
        if _at_hand(path) and _read(path).work:
            yield f"logs/{path.name} has the work of a rank that is not in the journal"


def _uneven(
    testimony: _Testimony, place: Place, attempt: Attempt, rank: int, num_ranks: int, example: str
) -> Iterator[str]:
    """Contradicts a rank whose share is not even: each rank takes its share of every step and of every
    validation, and two shares differ by at most one example. So no rank of a group can leave its work to the
    others."""
    batch = attempt.trial.hyper.batch_size
    steps, trained = testimony.work.get(place, (0, 0))
    # -(-a // b) is a / b rounded up.
    if not steps * (batch // num_ranks) <= trained <= steps * -(-batch // num_ranks):
        shared = f"{steps} steps of {batch} {example}s, shared by {counted(num_ranks, 'rank')}"
        yield f"rank {rank} wrote {trained} {example}s of {_named(place)}, which has {shared}"
    if (tally := testimony.answers.get(place)) is None or place[2] >= attempt.num_closed:
        return
    asked = attempt.rows[place[2]].of
    if not asked // num_ranks <= tally.of <= -(-asked // num_ranks):
        shared = f"has {asked} {example}s, shared by {counted(num_ranks, 'rank')}"
        yield f"rank {rank} validated {tally.of} {example}s after {_named(place)}, which {shared}"


def _sums(
    segment: Segment, place: Place, journal: tuple[int, int], group: dict[Author, _Testimony], example: str
) -> Iterator[str]:
    """Compares the sums over the ranks of a group with the journal's segment."""
    examples = sum(testimony.work.get(place, (0, 0))[1] for testimony in group.values())
    if examples != journal[1]:
        yield f"the ranks wrote {examples} {example}s of {_named(place)}; the journal has {journal[1]}"
    kind, written = type(segment.tally), [testimony.answers.get(place) for testimony in group.values()]
    counted = sum((tally for tally in written if type(tally) is kind), kind.nothing())
    if counted != segment.tally:
        yield f"the ranks have {counted.text()} after {_named(place)}; the journal has {segment.tally.text()}"


def _at_hand(path: Path) -> bool:
    """Also for an impossible path: host names in a journal may be anything."""
    return os.path.isfile(path) and os.access(path, os.R_OK)


def _named(place: Place) -> str:
    """A place as a contradiction names it."""
    return "trial {}, attempt {}, segment {}".format(*place)


def _read(path: Path) -> _Testimony:
    """Lines {trial, attempt, segment, steps, examples} of blocks; validations have a tally's numbers."""
    found = _Testimony()
    journal = RunFiles(path.parents[1]).journal
    most = SPARE_BYTES + (journal.stat().st_size if journal.exists() else 0)
    if (size := path.stat().st_size) > most:
        found.damage = f"logs/{path.name} has {size:,} bytes; with this journal it can have at most {most:,}"
        return found
    with opened(path) as file:
        _fold(lines(file, LONGEST_LINE), found, path.name)
    return found


def _fold(log: Iterable[bytes], found: _Testimony, name: str) -> None:
    """Takes the lines of a log up to the first that is damaged. A torn last line ends the log."""
    digest = sha256()
    for number, raw in enumerate(log, start=1):
        if not raw.endswith(b"\n") and len(raw) <= LONGEST_LINE:  # torn when the rank was killed
            break
        try:
            if len(raw) > LONGEST_LINE:
                raise ValueError(f"it has more than {LONGEST_LINE:,} bytes")
            digest.update(raw)
            record: Any = strict.parsed(raw)
            if type(record) is not dict:
                raise ValueError("it is not a JSON object")
            found.take(record, digest.digest())
        except (ValueError, RecursionError) as error:
            found.damage = f"line {number} of logs/{name} is damaged: {error}"
            break
