"""A run in one sentence; which groups were slow or lost, and why: said wherever a person reads of the run."""

from __future__ import annotations

from dataclasses import replace

from aiperf.journal.events import GroupLost, LegBegan, RankReady
from aiperf.journal.replay import Replay
from aiperf.rules.ending import Answer, Shortfall
from aiperf.rules.rule import Outcome
from aiperf.wording import rate
from analysis.exports.summary import status_text, summary_text
from analysis.readings.conclusion import (
    LOSSES_SHOWN,
    GroupHealth,
    conclusion,
    group_health,
    groups_text,
    losses_text,
)
from analysis.readings.judged import Judged
from analysis.readings.outliers import Outlier, outliers
from tests.journals import Scene, told


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
        "group 0: rank 1 on n1 is dead; it was restarted",
        "group 1: said nothing for 61 s; it was restarted",
        "group 0: dead again",
    ]
    assert losses_text(lost()) == []


def test_many_losses_are_counted() -> None:
    texts = losses_text(lost(*((group, "gone") for group in range(2, 9))))
    assert texts == [*(f"group {group}: gone" for group in range(2, 2 + LOSSES_SHOWN)), "and 2 more"]


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


DEVICES = "8 × NVIDIA A100-SXM4-80GB on 4 hosts"


def said(judged: Judged, system: str = "", validated: bool = True) -> str:
    health = group_health(judged.replay, outliers(judged.replay))
    return conclusion(judged.replay, judged.score, judged.verdict, validated, health, system)


def test_a_run_is_told_in_one_sentence(judged: Judged) -> None:
    ops = rate(judged.score.ops_per_second)
    rest = f"sustained {ops} over 3 minutes; the run is VALID, class smoke; of 4 groups, 1 was lost."
    assert said(judged) == f"{DEVICES} {rest}"
    assert said(judged, "Cluster X") == f"Cluster X ({DEVICES}) {rest}"
    assert "; the run has not been validated yet; of 4" in said(judged, validated=False)


def test_slow_groups_are_counted_with_those_of_slow_ranks(judged: Judged) -> None:
    def slow(who: str) -> Outlier:
        return Outlier(("n1",), ("x",), who, "before the span", 0.8, "slow")

    # Ranks 1 and 2 are group 0, rank 3 is of group 1.
    found = group_health(judged.replay, [slow(who) for who in ("rank 1", "rank 2", "group 0", "rank 3")])
    assert found == GroupHealth(total=4, slow=2, lost=1, back=0)
    assert groups_text(found) == "4, of these 2 slow and 1 lost"
    assert groups_text(GroupHealth(4, 0, 0, 0)) == "4"


def test_what_is_no_result_is_not_told_as_one(judged: Judged) -> None:
    findings = tuple(replace(one, outcome=Outcome.FAILED) for one in judged.verdict.findings)
    invalid = replace(judged, verdict=replace(judged.verdict, findings=findings))
    assert "; the run is INVALID, and the figure must not be used; " in said(invalid)
    lacks = Shortfall(Answer.NO_RESULT, "no network was tested")
    nothing = replace(judged, verdict=replace(judged.verdict, shortfall=lacks))
    assert said(nothing, "Cluster X") == f"The run of Cluster X on {DEVICES} has no result."
    begun = replace(
        judged, verdict=replace(judged.verdict, shortfall=Shortfall(Answer.INCOMPLETE, "it goes on"))
    )
    assert " over 3 minutes so far; the run is INCOMPLETE; of 4 groups" in said(begun)


def test_the_result_counts_lost_groups_and_repeated_attempts(judged: Judged) -> None:
    text = summary_text(judged.replay, judged.score, judged.verdict, judged.files)
    assert "\ngroups                  4, of these 1 lost\n" in text
    assert " 0 lost; 1 attempt lost and repeated; " in text
