"""What is read from the journal of a run whose workers pretended."""

from __future__ import annotations

from collections import defaultdict

from aiperf.journal.replay import Replay


def busy_shares(replay: Replay) -> dict[int, float]:
    """By group, the share that was work, credited or not, of the time from its first assignment to the end of
    its last work. Before that it waits for the master, which makes two proposals for each group.

    By the groups' own news of when work had ended; only the last of it may have been late on its way.
    """
    worked, last = defaultdict[int, float](float), defaultdict[int, float](float)
    first = {attempt.group: attempt.dispatch_time for attempt in reversed(replay.attempts)}
    blocks = replay.blocks
    for index, seconds, end in zip(*map(blocks.column, ("attempts", "seconds", "ends"))):
        group = replay.attempts[index].group
        worked[group] += seconds
        last[group] = max(last[group], end)
    for attempt in replay.attempts:
        for validation in attempt.validations:
            worked[attempt.group] += validation.segment.validate_seconds
            last[attempt.group] = max(last[attempt.group], validation.end)
    return {group: worked[group] / (last[group] - first[group]) for group in sorted(worked)}
