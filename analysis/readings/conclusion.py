"""A run in one sentence, and which of its groups were slow or lost."""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.journal.mark import mark_of
from aiperf.journal.replay import Replay
from aiperf.rules.ending import Answer
from aiperf.rules.verdict import Verdict
from aiperf.score.score import Score
from aiperf.wording import counted, duration, rate
from analysis.readings.outliers import Outlier
from analysis.readings.run_tables import devices_and_hosts, listed
from nas.frozen import frozen

LOSSES_SHOWN = 5
"""Most losses that are named one by one."""


@frozen
class GroupHealth:
    """How many groups the last leg has and how many of them were slow; how many were lost in any leg."""

    total: int
    """Groups of the last leg."""
    slow: int
    """Below the others, or with a rank that is."""
    lost: int
    """Lost, and not back at the end of the leg."""
    back: int
    """Lost, and started again."""

    @property
    def told(self) -> list[str]:
        """ "2 slow", "1 lost"; a number of 0 is left out."""
        parts = ((self.slow, "slow"), (self.lost, "lost"), (self.back, "lost and restarted"))
        return [f"{number:,} {what}" for number, what in parts if number]


def group_health(replay: Replay, slow: Sequence[Outlier]) -> GroupHealth:
    """Counts the groups. A slow rank makes its group slow: all of a group wait for the slowest rank."""
    if not replay.legs:
        return GroupHealth(0, 0, 0, 0)
    group_of = {
        f"rank {rank}": group for group, ranks in enumerate(replay.leg.began.groups) for rank in ranks
    }
    named = {group_of.get(one.who, one.who.removeprefix("group ")) for one in slow}
    gone = {
        (leg.index, loss.group) for leg in replay.legs for loss in leg.losses if loss.group not in leg.alive
    }
    ever = {(leg.index, loss.group) for leg in replay.legs for loss in leg.losses}
    return GroupHealth(replay.leg.groups, len(set(map(str, named))), len(gone), len(ever - gone))


def groups_text(found: GroupHealth) -> str:
    """ "8, of these 2 slow and 1 lost"."""
    return f"{found.total:,}, of these {listed(found.told)}" if found.told else f"{found.total:,}"


def losses_text(replay: Replay) -> list[str]:
    """A line for each loss of a group, in the order of the journal; of many the rest is counted."""
    found = []
    for leg in replay.legs:
        where = f"leg {leg.index}, " if len(replay.legs) > 1 else ""
        last = {loss.group: place for place, loss in enumerate(leg.losses)}
        for place, loss in enumerate(leg.losses):
            back = loss.group in leg.alive or place < last[loss.group]
            found.append(f"{where}group {loss.group}: {loss.reason}{'; it was restarted' if back else ''}")
    more = len(found) - LOSSES_SHOWN
    return [*found[:LOSSES_SHOWN], f"and {more:,} more"] if more > 0 else found


def conclusion(
    replay: Replay, score: Score, verdict: Verdict, validated: bool, health: GroupHealth, system: str = ""
) -> str:
    """The run in one sentence. `system` is its owner's name for the machine."""
    machine = devices_and_hosts(replay)
    if verdict.answer is Answer.NO_RESULT:
        return f"The run {f'of {system} ' if system else ''}on {machine} has no result."
    who = f"{system} ({machine})" if system else machine
    so_far = " so far" if verdict.answer is Answer.INCOMPLETE else ""
    what = f"sustained {rate(score.ops_per_second)} over {duration(score.span_seconds)}{so_far}"
    mark = mark_of(replay.opened.origin)
    begin = "" if mark is None else f"{mark.word.capitalize()}, not measured: "
    parts = [f"{begin}{who} {what}", _judged(verdict, validated)]
    if health.told:
        total = counted(health.total, "group")
        parts.append(f"of {total}, {listed([_were(one) for one in health.told])}")
    return f"{'; '.join(parts)}."


def _judged(verdict: Verdict, validated: bool) -> str:
    """The verdict as a part of the sentence."""
    if verdict.answer is Answer.INVALID:
        return "the run is INVALID, and the figure must not be used"
    if verdict.run_class is not None:
        if not validated:
            return "the run has not been validated yet"
        return f"the run is {verdict.answer.value}, class {verdict.class_text}"
    return f"the run is {verdict.answer.value}"


def _were(told: str) -> str:
    """ "2 were slow", "1 was lost"."""
    number, _, what = told.partition(" ")
    return f"{number} {'was' if number == '1' else 'were'} {what}"
