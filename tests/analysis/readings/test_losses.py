"""Which groups were lost, and why: said wherever a person reads of the run."""

from __future__ import annotations

from aiperf.journal.events import GroupLost, LegBegan, RankReady
from aiperf.journal.replay import Replay
from analysis.exports.summary import status_text, summary_text
from analysis.readings.judged import Judged
from analysis.readings.losses import SHOWN, losses_text
from tests.aiperf.journals import Scene, told


def lost(*reasons: tuple[int, str]) -> Replay:
    """A leg in which these groups were lost, group 1 having come back."""
    found = Replay()
    found.add(0.0, LegBegan(0, "", (), tuple((1 + group,) for group in range(9))))
    for group, reason in reasons:
        found.add(1.0, GroupLost(group, reason))
    for _, event in told(Scene(groups=2, minutes=0.05)):
        if isinstance(event, RankReady) and event.group == 1:
            found.add(2.0, event)
    return found


def test_each_loss_is_told_with_its_reason_and_who_came_back() -> None:
    run = lost((0, "rank 1 on n1 is dead"), (1, "said nothing for 61 s"), (0, "dead again"))
    assert losses_text(run) == [
        "group 0: rank 1 on n1 is dead; it came back",
        "group 1: said nothing for 61 s; it came back",
        "group 0: dead again",
    ]
    assert losses_text(lost()) == []


def test_many_losses_are_counted() -> None:
    texts = losses_text(lost(*((group, "gone") for group in range(2, 9))))
    assert texts == [*(f"group {group}: gone" for group in range(2, 2 + SHOWN)), "and 2 more"]


def test_of_several_legs_each_loss_names_its_own() -> None:
    run = lost((3, "gone"))
    run.add(3.0, LegBegan(1, "", (), ((1,),)))
    assert losses_text(run) == ["leg 1, group 3: gone"]


def test_the_result_and_the_status_say_who_was_lost(judged: Judged) -> None:
    reason = "group 3: node0004 does not answer any more"
    result = summary_text(judged.replay, judged.score, judged.verdict, judged.files)
    for text in (result, status_text(judged.replay, judged.files)):
        (line,) = [line for line in text.splitlines() if line.startswith("lost")]
        assert line.split(None, 1)[1] == reason
