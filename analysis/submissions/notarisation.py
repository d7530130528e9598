"""How far a journal is held by the answers of a notary: its start, its duration and the order of its lines.

The journal's clock and the notary's are compared by differences only, so it does not matter what time of day
either of them has. A head was signed after its last line was written, and the nonce was known before the
lines after it were, so a journal can never count more time between the two than the notary. It counts less
by as much as the notary was late, which is why a head that was late says nothing about the duration.

Nothing here makes a run INVALID: an answer that does not fit ends what is notarised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from aiperf.journal.attempts import Leg
from aiperf.journal.file import Position, positions
from aiperf.journal.notary import NotaryAnswer, NotaryFileError, answers
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.journal.spot_checks import Draw, chosen, drawn, endings_by_leg
from aiperf.os_error import reason
from aiperf.wording import counted, percent
from analysis.submissions.keys import Register
from analysis.submissions.signature import fits
from nas.bounded import file_digest
from nas.frozen import frozen

LATE_SECONDS = 20.0
"""Longest time in seconds from a line to its signature, in addition to the run's wait for its nonce, that
still confirms a duration: a notary looks once per second, and a proxy may carry the files further."""
CLOCK_SHARE = 0.001
"""Largest relative difference of two honest clocks: one that is being corrected runs up to 0.05 % fast or
slow."""
CLOCK_SECONDS = 0.5
"""Largest step in seconds by which a clock is corrected while it is in use."""
NOTARIES_SECONDS = 60.0
"""Largest difference in seconds of the times of day of two notaries that saw different legs. Without a
limit, legs that were signed at the same time could be presented as consecutive."""
TAIL_SECONDS = 60.0
"""Longest time in seconds from the last head to the end of a leg that was killed, which hands over none at
its end: two intervals between heads."""


@frozen
class NotarisedLeg:
    """One leg that has a span, or the test."""

    index: int
    """Place of the leg in the run, from 0."""
    span_seconds: float
    notary: str = ""
    """Name of the notary in the list; empty if no answer counts."""
    nonces: int = 0
    """Number of nonces that the notary had given, up to this leg's."""
    began: str = ""
    """When it gave the nonce, by its own clock."""
    heads: int = 0
    """Number of heads that were signed in time."""
    line: int = 0
    """Last line that one of them covers."""
    seconds: float = 0.0
    """The part of the span that they cover."""
    longest_gap: float = 0.0
    """Longest time within this part between two of them in seconds."""
    why: str = ""
    """Why it is not notarised to its end; empty if it is."""

    @property
    def is_whole(self) -> bool:
        return not self.why


@frozen
class SpotChecked:
    """The trials that a notary's signatures chose, and how many of them have the weights that the journal
    recorded before it was signed."""

    chosen: int = 0
    there: int = 0
    """Number of those whose weights are in the folder and unchanged."""
    late: int = 0
    """Number of those without their weights that the notary chose too late."""
    missing: int = 0
    others: int = 0
    """Number of files with another hash."""

    @property
    def text(self) -> str:
        """Empty if no trial was chosen."""
        lacking = ((self.late, "skipped (late)"), (self.missing, "missing"), (self.others, "replaced"))
        found = [f"{self.there} of {self.chosen} there", *(f"{n} {what}" for n, what in lacking if n)]
        return f"spot checks: {', '.join(found)}" if self.chosen else ""


@frozen
class Notarised:
    """A run, by a list of notaries."""

    legs: Sequence[NotarisedLeg]
    """The legs that have a span or the test, in their order."""
    lines: int
    """Number of lines of the journal."""
    spots: SpotChecked = SpotChecked()

    @property
    def is_whole(self) -> bool:
        return bool(self.legs) and all(leg.is_whole for leg in self.legs)

    @property
    def label(self) -> str:
        """For a list: by whom, or until which line, or not."""
        held = self._held
        names = " and ".join(dict.fromkeys(leg.notary for leg in held))
        if not held:
            return "not notarised"
        until = "" if self.is_whole else f" until line {held[-1].line:,} of {self.lines:,}"
        return f"notarised by {names}{until}"

    @property
    def text(self) -> str:
        """The label with its reason and with what is known about the times."""
        if not self.legs:
            return f"{self.label}: no leg of the run has a span"
        first = next((leg for leg in self.legs if not leg.is_whole), None)
        why = "" if first is None else f": {self._named(first)}{first.why}"
        times = (self._named(leg) + _times(leg) for leg in self._held)
        return "; ".join(filter(None, [f"{self.label}{why}", *times, self.spots.text]))

    @property
    def _held(self) -> list[NotarisedLeg]:
        """The legs with a signed head, up to the first that is not whole: a line is notarised with all that
        come before it."""
        found = []
        for leg in self.legs:
            found += [leg] if leg.line else []
            if not leg.is_whole:
                break
        return found

    def _named(self, leg: NotarisedLeg) -> str:
        return f"leg {leg.index}: " if len(self.legs) > 1 else ""


def notarised(files: RunFiles, replay: Replay, notaries: Register) -> Notarised:
    """Holds a run to the answers next to its journal. `notaries`: the names of those that count, by their
    public keys. Raises JournalError if the journal cannot be read."""
    legs = [leg for leg in replay.legs if leg.span_seconds > 0 or _has_test(leg, replay)]
    signed = {leg.index: _signed(files, leg, notaries) for leg in legs}
    numbers = {answer.head.lines for each in signed.values() for answer in each.answers}
    there = positions(files.journal, numbers)
    found, last, draws, endings = list[NotarisedLeg](), None, list[Draw](), endings_by_leg(replay)
    for leg in legs:
        held, last = _held(leg, signed[leg.index], there, last, notaries)
        if held.is_whole and _has_test(leg, replay) and (not last or last.head.lines < replay.tested_line):
            why = signed[leg.index].why or "the line of the test was not signed"
            held = replace(held, why=why)
        found.append(held)
        if held.notary and last is not None:
            draws += drawn(endings.get(leg.index, ()), signed[leg.index].answers[: last.count + 1])
    return Notarised(found, replay.lines, _spot_checked(files, chosen(draws)))


def _spot_checked(files: RunFiles, draws: Sequence[Draw]) -> SpotChecked:
    """Counts the chosen trials by what became of their weights."""
    there = late = missing = 0
    for each in draws:
        path = files.spot_weights(each.ending.trial)
        is_file = path.is_file()
        if is_file and file_digest(path) == each.ending.weights:
            there += 1
        elif each.is_late:
            late += 1
        elif not is_file:
            missing += 1
    return SpotChecked(len(draws), there, late, missing, len(draws) - there - late - missing)


def _has_test(leg: Leg, replay: Replay) -> bool:
    """Whether the best network was tested in this leg. One that was resumed for that has no span."""
    return leg.first_line <= replay.tested_line <= leg.last_line


@frozen
class _Signed:
    """The answers to a leg that one listed notary signed, in their order."""

    answers: Sequence[NotaryAnswer]
    why: str = ""
    """What is wrong with the next one, or with the first."""


def _signed(files: RunFiles, leg: Leg, notaries: Register) -> _Signed:
    """The answers to a leg up to the first that is wrong, and what is wrong with it."""
    if leg.nonce is None:
        return _Signed((), "no notary gave it a nonce")
    path, found = files.notary_answers(leg.index), list[NotaryAnswer]()
    name = path.relative_to(files.directory)
    try:
        for answer in answers(path):
            before = found[-1] if found else None
            if why := _wrong(answer, before, notaries):
                return _Signed(found, f"{name}, line {len(found) + 1}: {why}")
            found.append(answer)
    except FileNotFoundError:
        return _Signed((), f"{name} is missing")
    except OSError as error:
        return _Signed((), f"{name}: {reason(error)}")
    except NotaryFileError as error:
        return _Signed(found, f"{name}, line {len(found) + 1}: {error}")
    return _Signed(found)


def _wrong(answer: NotaryAnswer, before: NotaryAnswer | None, notaries: Register) -> str:
    """Why an answer cannot follow the one before it; empty if it can."""
    if answer.key not in notaries:
        return f"its key {answer.key:.16}… is not one of the listed notaries"
    if not fits(answer.key, answer.content, answer.signature):
        return f"the signature is not that of {notaries[answer.key]}"
    if before is None:
        return "" if answer.count == 0 and not answer.previous else "it is not the first answer to a leg"
    same = (answer.key, answer.nonce, answer.nonces) == (before.key, before.nonce, before.nonces)
    if not same or (answer.previous, answer.count) != (before.signature, before.count + 1):
        return "it does not follow from the line above it"
    if not before.head.precedes(answer.head) or answer.milliseconds < before.milliseconds:
        return "it is earlier than the line above it"
    return ""


def _held(
    leg: Leg, signed: _Signed, there: Mapping[int, Position], before: NotaryAnswer | None, notaries: Register
) -> tuple[NotarisedLeg, NotaryAnswer | None]:
    """What the answers hold of a leg, and the last of them that fits. `before` is that of the leg before."""
    bare = NotarisedLeg(leg.index, leg.span_seconds, why=signed.why)
    if not signed.answers:
        return bare, before
    first = signed.answers[0]
    if why := _no_start(leg, first, there, before):
        return NotarisedLeg(leg.index, leg.span_seconds, why=why), before
    times, line, last, late, why = list[float](), 0, first, 0, ""
    for answer in signed.answers[1:]:
        if why := _contradiction(leg, first, answer, there):
            break
        last = answer
        t, elapsed = there[answer.head.lines].t, (answer.milliseconds - first.milliseconds) / 1000
        if elapsed - (t - leg.nonce_time) > LATE_SECONDS + CLOCK_SHARE * elapsed:
            late += 1
        else:
            times.append(t)
            line = answer.head.lines
    seconds, gap = _covered(leg, times, line)
    if not why and not _reaches_end(leg, times, line):
        lateness = f"; {counted(late, 'head')} signed too late" if late else ""
        covered = f"{seconds:,.0f} of {leg.span_seconds:,.0f} s of the span are covered{lateness}"
        why = signed.why or covered
    held = NotarisedLeg(
        *(leg.index, leg.span_seconds, notaries[first.key], first.nonces, first.time),
        *(len(times), line, seconds, gap, why),
    )
    return held, last


def _no_start(
    leg: Leg, first: NotaryAnswer, there: Mapping[int, Position], before: NotaryAnswer | None
) -> str:
    """Why the first answer does not show that the leg began after it; empty if it does."""
    assert leg.nonce is not None, "there are no answers without it"
    if (first.nonce, first.signature) != (leg.nonce.nonce, leg.nonce.signature):
        return "the nonce in the journal is not that of the first answer"
    if not leg.first_line <= first.head.lines < leg.nonce_line or not _fits(first, there):
        return "its nonce was given for another journal"
    apart = 0 if before is None or before.key == first.key else 1000 * NOTARIES_SECONDS
    if before is not None and first.milliseconds < before.milliseconds - apart:
        return "its nonce is older than the last answer to the leg before it"
    return ""


def _contradiction(leg: Leg, first: NotaryAnswer, answer: NotaryAnswer, there: Mapping[int, Position]) -> str:
    """Why the journal cannot have had this head at that time; empty if it can."""
    number = answer.head.lines
    if number not in there or number > leg.last_line:
        return f"lines up to {number:,} were signed, and the leg ends before"
    if not _fits(answer, there):
        return f"line {number:,} or one before it was changed after it was signed"
    elapsed = (answer.milliseconds - first.milliseconds) / 1000
    own = there[number].t - leg.nonce_time
    if own > elapsed + CLOCK_SECONDS + CLOCK_SHARE * elapsed:
        return (
            f"from its nonce to line {number:,} the journal counts {own:,.1f} s, the notary {elapsed:,.1f} s"
        )
    return ""


def _fits(answer: NotaryAnswer, there: Mapping[int, Position]) -> bool:
    """Whether the journal had exactly these bytes and this chain at the line that was signed."""
    position = there.get(answer.head.lines)
    return position is not None and (position.bytes, position.chain) == (answer.head.bytes, answer.head.chain)


def _reaches_end(leg: Leg, times: Sequence[float], line: int) -> bool:
    """Whether the heads cover the span: one after its last line, or, in a leg that was killed, one within it
    and soon enough before its end."""
    if leg.ended is not None:
        return line >= leg.end_line
    assert leg.released is not None, "a leg with a span"
    last = max(times, default=0.0)
    return last >= leg.released and leg.end - last <= TAIL_SECONDS


def _covered(leg: Leg, times: Sequence[float], line: int) -> tuple[float, float]:
    """The seconds of the span that lie before the last head in time, and the longest time without one."""
    begin, end = leg.released or 0.0, leg.end
    within = [min(max(t, begin), end) for t in times]
    if line >= leg.end_line > 0:
        within.append(end)
    points = sorted([begin, *within])
    gaps = [later - earlier for earlier, later in pairwise(points)]
    return points[-1] - begin, max(gaps, default=0.0)


def _times(leg: NotarisedLeg) -> str:
    """What is known about the times of a leg, for the text of a run."""
    tolerance = f"{LATE_SECONDS:.0f} s + {percent(CLOCK_SHARE, 1)}"
    return (
        f"nonce {leg.nonces:,} of {leg.notary} at {leg.began}, {counted(leg.heads, 'head')} in time, "
        f"longest gap {leg.longest_gap:,.0f} s, duration within {tolerance}"
    )
