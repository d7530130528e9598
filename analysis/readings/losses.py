"""Which groups were lost, and the reason that the journal gives."""

from __future__ import annotations

from aiperf.journal.replay import Replay

SHOWN = 5


def losses_text(replay: Replay) -> list[str]:
    """A line for each loss of a group, in the order of the journal; beyond `SHOWN` they are counted."""
    found = []
    for leg in replay.legs:
        where = f"leg {leg.index + 1}, " if len(replay.legs) > 1 else ""
        last = {loss.group: place for place, loss in enumerate(leg.losses)}
        for place, loss in enumerate(leg.losses):
            back = loss.group in leg.alive or place < last[loss.group]
            found.append(f"{where}group {loss.group}: {loss.reason}{'; it came back' if back else ''}")
    more = len(found) - SHOWN
    return [*found[:SHOWN], f"and {more:,} more"] if more > 0 else found
