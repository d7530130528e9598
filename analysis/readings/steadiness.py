"""How steady the speed of a run's machine was: steps of one network should take equally long.

What slows a host from outside is not always seen in its own figures. The neighbours of a virtual machine take
cycles of a core that it shares, and a processor that is hot lowers its clock; neither is CPU time of others.
Both change within minutes, so the same steps then take longer than before.
"""

from __future__ import annotations

import numpy as np

from aiperf.journal.replay import Replay

LEAST_BLOCKS = 10
"""Fewest blocks of an attempt, without its first one, of which a fastest tenth is known."""
LEAST_COVERED = 0.5
"""Share of the training time that such attempts must have."""
FASTEST = 0.1
"""The share of an attempt's examples with which the others are compared: the very fastest block is luck."""


def time_lost(replay: Replay) -> float | None:
    """Share of the training time that was lost compared with the rate of the fastest tenth of the examples of
    the same attempt, 0 to 1. None if too few attempts are long enough.

    The first block of an attempt is left out, because it also holds what happens once. So are attempts whose
    engine fell back.
    """
    blocks = replay.blocks
    attempts, seconds, examples = map(blocks.column, ("attempts", "seconds", "examples"))
    is_used = (seconds > 0) & (examples > 0)
    is_used[np.unique(attempts, return_index=True)[1]] = False
    fell_back = [attempt.index for attempt in replay.attempts if attempt.fallback is not None]
    is_used &= ~np.isin(attempts, fell_back)
    all_seconds = seconds[is_used].sum()
    of_attempt = np.bincount(attempts[is_used], minlength=len(replay.attempts))
    is_used &= of_attempt[attempts] >= LEAST_BLOCKS
    covered = seconds[is_used].sum()
    if covered < LEAST_COVERED * all_seconds or not covered:
        return None
    attempts, seconds, examples = attempts[is_used], seconds[is_used], examples[is_used]
    each = seconds / examples
    order = np.lexsort((each, attempts))  # by attempt, the fastest blocks first
    done = np.cumsum(examples[order])
    first = np.unique(attempts[order], return_index=True)[1]
    before = done[first] - examples[order][first]
    totals = np.diff(before, append=done[-1])
    fastest = each[order][np.searchsorted(done, before + FASTEST * totals)]
    return max(0.0, 1.0 - float((fastest * totals).sum() / covered))
