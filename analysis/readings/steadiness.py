"""How steadily a run trained: steps of one network should take equally long.

What slows a host from outside is not always seen in its own figures. The neighbours of a virtual machine take
cycles of a core that it shares, and a processor that is hot lowers its clock; neither is CPU time of others.
In the times of steps both are seen, together with other programs and with waiting for data.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from aiperf.journal.mark import mark_of
from aiperf.journal.replay import Replay

STEPS = 12
"""Steps whose time is compared as one, so that the noise of single steps averages out. The first ones are
left out: they hold what happens once, and a group has another engine until the eleventh."""
LEAST_PIECES = 10
"""Fewest such pieces of an attempt of which a fastest tenth is known."""
LEAST_COVERED = 0.5
"""Share of the training time that such attempts must have."""
FASTEST = 0.1
"""Share of an attempt's examples with which the others are compared: the very fastest piece is luck."""


def time_lost(replay: Replay) -> float | None:
    """Share of the time of long attempts that was lost compared with the rate of the fastest tenth of the
    examples of each, 0 to 1. None if too few attempts are long enough, and for a run that was not measured.

    What slows nine tenths of an attempt or more is not seen.
    """
    if mark_of(replay.opened.origin) or not len(replay.blocks):
        return None
    attempts, seconds, examples = _pieces(replay)
    is_used = (seconds > 0) & (examples > 0)
    is_used &= np.bincount(attempts[is_used], minlength=len(replay.attempts))[attempts] >= LEAST_PIECES
    covered = seconds[is_used].sum()
    if not covered or covered < LEAST_COVERED * np.sum(replay.blocks.column("seconds")):
        return None
    attempts, examples = attempts[is_used], examples[is_used]
    each = seconds[is_used] / examples
    order = np.lexsort((each, attempts))  # by attempt, the fastest pieces first
    done = np.cumsum(examples[order])
    first = np.unique(attempts[order], return_index=True)[1]
    before = done[first] - examples[order][first]
    totals = np.diff(before, append=done[-1])
    places = np.minimum(np.searchsorted(done, before + FASTEST * totals), len(done) - 1)
    return float(np.clip(1.0 - (each[order][places] * totals).sum() / covered, 0.0, 1.0))


def _pieces(replay: Replay) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Attempt, seconds and examples of neighbouring blocks that make about STEPS steps together, of attempts
    that may have enough of them. Those of the first steps of an attempt, and of attempts that fell back, have
    none. Doubles, because a journal may hold any number."""
    column, of_block = replay.blocks.column, replay.blocks.column("attempts")
    is_long = np.bincount(of_block) >= LEAST_PIECES  # a piece is of one block at least
    order = np.flatnonzero(is_long[of_block])
    order = order[np.argsort(of_block[order], kind="stable")]
    attempts, seconds, examples, steps = (
        column(name)[order] for name in ("attempts", "seconds", "examples", "steps")
    )
    done = np.cumsum(steps.astype(np.float64))
    first = np.unique(attempts, return_index=True)[1]
    before = done - steps - np.repeat((done - steps)[first], np.diff(first, append=len(attempts)))
    pieces = before // STEPS
    fell_back = [attempt.index for attempt in replay.attempts if attempt.fallback is not None]
    is_used = (pieces > 0) & ~np.isin(attempts, fell_back)
    begins = (np.diff(attempts, prepend=-1) != 0) | (np.diff(pieces, prepend=-1) != 0)
    number = np.cumsum(begins) - 1
    of_seconds, of_examples = (
        np.bincount(number, weights=np.where(is_used, each, 0.0)).astype(np.float64)
        for each in (seconds, examples)
    )
    return attempts[begins], of_seconds, of_examples
