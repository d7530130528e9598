"""Spot checks of a notarised run: which trials a notary's signatures choose to have their weights kept.

The journal records the hash of the weights of each trial when it ends, and a notary then signs that line. The
bytes of its signature are unknown to the run until then, and draw a number for the trial. The trials with the
lowest numbers of the whole run are checked: their weights are kept and packed. Whoever has the journal and
the answers draws the same trials again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from heapq import nsmallest
from itertools import pairwise

from aiperf.journal.attempts import Attempt
from aiperf.journal.notary import NotaryAnswer, NotaryFileError, answers
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from nas.frozen import frozen

MOST = 8
"""Maximum number of trials of a run that are checked. If a share of the trials was made up, all of them
escape with the chance (1 - share)^8: 0.4 % if it is half of them."""
MOST_PARAMETERS = 1 << 28
"""Maximum number of parameters of the checked networks together, so that they have at most 3 GiB: four bytes
for each parameter and for each of at most two values of the optimizer. Larger networks are not checked."""
LATE_MILLISECONDS = 120_000
"""Longest time between two answers after which the second still chooses trials, in milliseconds by the
notary's clock. A run need not keep the weights of all trials for longer."""


@frozen
class Ending:
    """The end of a trial with kept weights."""

    trial: int
    line: int
    """Number of its line in the journal."""
    parameters: int
    weights: str
    """SHA-256 of the file of weights; empty if the journal has none."""


@frozen
class Draw:
    """The number that a trial was drawn."""

    ending: Ending
    number: str
    """In hexadecimal digits."""
    is_late: bool = False
    """Whether the answer came too late for its weights to be still kept."""


def ending_of(attempt: Attempt) -> Ending | None:
    """The end of an attempt if its trial can be checked; None if it was lost, failed, kept no network or is
    too large. One that is said to have kept a network, and has no hash of it, can be chosen: its weights will
    be missing."""
    parameters = attempt.dispatched.parameters
    if not attempt.chosen_from or parameters > MOST_PARAMETERS:
        return None
    return Ending(attempt.trial.number, attempt.end_line, parameters, attempt.weights)


def endings_by_leg(replay: Replay) -> Mapping[int, Sequence[Ending]]:
    """The trials that can be checked, by the index of their leg, in the order of their lines."""
    found = defaultdict[int, list[Ending]](list)
    for attempt in replay.arrivals:
        if (ending := ending_of(attempt)) is not None:
            found[attempt.leg.index].append(ending)
    return found


def draw(ending: Ending, answer: NotaryAnswer, before: NotaryAnswer | None) -> Draw:
    """The number of a trial by the first answer that covers its end; `before` is the answer before that."""
    number = sha256(f"{answer.signature} {ending.trial}".encode()).hexdigest()
    gap = 0 if before is None else answer.milliseconds - before.milliseconds
    return Draw(ending, number, gap > LATE_MILLISECONDS)


def drawn(endings: Sequence[Ending], signed: Sequence[NotaryAnswer]) -> Iterator[Draw]:
    """The numbers of a leg's trials, by its answers. A trial that no answer covers has none."""
    left = iter(endings)
    ending = next(left, None)
    for before, answer in pairwise(signed):
        while ending is not None and ending.line <= answer.head.lines:
            yield draw(ending, answer, before)
            ending = next(left, None)


def chosen(draws: Iterable[Draw]) -> list[Draw]:
    """The trials that are checked: those with the lowest numbers, up to the first that is one too many. What
    is not among them never comes back if others are added, so a run keeps only these."""
    found, parameters = list[Draw](), 0
    for each in nsmallest(MOST, draws, key=lambda draw: draw.number):
        parameters += each.ending.parameters
        if parameters > MOST_PARAMETERS:
            break
        found.append(each)
    return found


def chosen_in(files: RunFiles, replay: Replay) -> list[Draw]:
    """The trials that the answers next to a journal choose, whoever signed them."""
    draws, endings = list[Draw](), endings_by_leg(replay)
    for leg in replay.legs:
        signed = list[NotaryAnswer]()
        with suppress(NotaryFileError, OSError):  # what is not an answer chooses nothing
            signed += answers(files.notary_answers(leg.index))
        draws += drawn(endings.get(leg.index, ()), signed)
    return chosen(draws)
