"""What the device checks of a run say, in words."""

from __future__ import annotations

from aiperf.journal.replay import Replay
from aiperf.score.deviation import CHECKED_SINCE, agreement
from aiperf.wording import FEW, first_few


def device_check_text(replay: Replay) -> list[str]:
    """A line for each device that computes wrongly, otherwise one for all; none for older journals."""
    if replay.opened.rules < CHECKED_SINCE or not replay.legs:
        return []
    found = agreement(replay)
    lines = [deviation.text for deviation in found.deviations]
    if lines:
        more = [f"{len(lines) - FEW} more devices computed other bits"] if len(lines) > FEW else []
        return lines[:FEW] + more
    if found.unknown:
        return [f"unknown ({first_few(found.unknown)})"]
    return [found.agreed_text]
