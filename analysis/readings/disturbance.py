"""What disturbed a run, in words."""

from __future__ import annotations

from aiperf.journal.replay import Replay
from aiperf.score.disturbance import MOST_OTHERS, disturbances, most_disturbed
from aiperf.wording import counted, percent

MEASURED_SINCE = 2
"""Version of the rules since which runs measure it."""
LEAST_STOLEN = 0.005
LEAST_STOP_SECONDS = 1.0


def disturbance_text(replay: Replay) -> list[str]:
    """A line for other programs, and one for stops; none for a run that was not measured, and in older
    journals."""
    if replay.opened.rules < MEASURED_SINCE or not (found := disturbances(replay)):
        return []
    worst = most_disturbed(found)
    if worst is None:
        return ["unknown (too little of the span was looked at)"]
    stolen = f", of it {percent(worst.stolen, 1)} to the hypervisor" if worst.stolen >= LEAST_STOLEN else ""
    taken = f"{percent(worst.others, 1)} of {{}} CPU time went to other programs{stolen}"
    if len(found) == 1:
        lines = [taken.format("this host's")]
    else:
        above = sum(each.others > MOST_OTHERS for each in found)
        hosts = f"{above} of {counted(len(found), 'host')} above {percent(MOST_OTHERS, 0)}"
        lines = ["at most " + taken.format("a host's") + f" ({worst.host}; {hosts})"]
    for each in found:
        if each.stopped_seconds >= LEAST_STOP_SECONDS:
            where = f" on {each.host}" if len(found) > 1 else ""
            lines.append(f"processes of the run were stopped for {each.stopped_seconds:.0f} s{where}")
    return lines
