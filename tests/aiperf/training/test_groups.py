"""Two real ranks train as one does, step by one engine, count the same bytes, fail together, and listen
on the loopback interface only."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from aiperf.engines.agreement import ELSEWHERE
from aiperf.parallel.parallel import Solo
from aiperf.tasks.language.tally import Predicted
from tests.aiperf.conduct.courses import expected
from tests.aiperf.conduct.driven import IN_A_GROUP
from tests.aiperf.training.text_trials import TEXT, WINDOW
from tests.aiperf.training.two_ranks import texts

SECONDS = 300.0
"""Each waits for the other in an all-reduce where they do not agree."""
TRAINED = ("sgd", "adamw", "captured", "clipped", "clipped in fp16")


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What two processes, one for each rank, print as JSON."""
    command = [sys.executable, "-m", "tests.aiperf.training.two_ranks"]
    folder = str(tmp_path_factory.mktemp("group"))
    started = [
        subprocess.Popen([*command, str(rank), folder], stdout=subprocess.PIPE, text=True) for rank in (0, 1)
    ]
    try:
        return [json.loads(rank.communicate(timeout=SECONDS)[0]) for rank in started]
    finally:
        for rank in started:
            rank.kill()
            rank.communicate()  # which closes its pipe, after a timeout too


@pytest.fixture
def ranks(printed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [rank["text"] for rank in printed]


def test_a_group_on_one_host_can_be_reached_from_no_other_host(printed: list[dict[str, Any]]) -> None:
    """Whatever interface the site has chosen for Gloo. The leader has a socket of the store as well."""
    assert [set(rank["listening"]) for rank in printed] == [{"127.0.0.1"}] * 2
    assert len(printed[0]["listening"]) == len(printed[1]["listening"]) + 1


def test_a_group_of_two_processes_does_what_its_leader_decides(printed: list[dict[str, Any]]) -> None:
    """Only the leader speaks, but for the failure that each rank has by itself."""
    leader, other = (rank["courses"] for rank in printed)
    assert leader == {name: text for name, text in expected().items() if name in IN_A_GROUP}
    failed = {"a parent's weights are nowhere": "  trial 0: FAILED\n"}
    assert other == {name: f"{name}\n{failed.get(name, '')}" for name in IN_A_GROUP}


def test_a_group_captures_its_steps_and_learns_what_an_eager_one_learns(
    printed: list[dict[str, Any]],
) -> None:
    """What is not captured on one rank, or fails its check there, is eager on all."""
    assert [rank["captures"] for rank in printed] == 2 * [["0", "0"]]
    images = [rank["images"] for rank in printed]
    learnt, fused = images[0]["eager"][1], images[0]["fused"][1]
    assert fused != learnt, "sums of fused steps are rounded otherwise"
    alike = {"eager": [[], learnt], "captured": [[], learnt], "fused": [[], fused]}
    own = ("not captured", "another loss", "other gradients")
    assert images[0] == alike | {name: [[ELSEWHERE], learnt] for name in own}
    reasons = [reason for name in own for reason in images[1][name][0]]
    assert images[1] == alike | {name: [[reason], learnt] for name, reason in zip(own, reasons)}
    assert reasons[0] == "RuntimeError: no capture here"
    assert reasons[1].startswith("the loss is ")
    assert reasons[2].startswith("the gradient of "), "from the mean of both ranks"


@pytest.fixture(scope="module")
def solo() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(texts(Solo())))
    return found


def test_the_sum_over_a_group_is_that_of_one_rank(ranks: list[dict[str, Any]], solo: dict[str, Any]) -> None:
    """Every byte once, each rank its share; the bits are those of the same network, to a unit or two of a
    product that is summed in another order."""
    own = [Predicted(*rank["untrained"]["own"]) for rank in ranks]
    whole, one = Predicted(*ranks[0]["untrained"]["whole"]), Predicted(*solo["untrained"]["whole"])
    assert ranks[1]["untrained"]["whole"] == list(whole.numbers)
    assert own[0] + own[1] == whole
    assert (
        (whole.of, whole.bytes) == (one.of, one.bytes) == (len(TEXT) // WINDOW, len(TEXT) // WINDOW * WINDOW)
    )
    assert min(each.bytes for each in own) >= whole.bytes // 2 - WINDOW
    assert abs(whole.units - one.units) <= 2 * whole.bytes


@pytest.mark.parametrize("case", TRAINED)
def test_a_group_learns_what_one_rank_learns(
    case: str, ranks: list[dict[str, Any]], solo: dict[str, Any]
) -> None:
    both = [rank[case] for rank in ranks]
    assert both[0]["learnt"] == both[1]["learnt"]
    assert both[0]["skipped"] == solo[case]["skipped"] == 0
    whole, one = Predicted(*both[0]["whole"]), Predicted(*solo[case]["whole"])
    assert whole.bits_per_byte == pytest.approx(one.bits_per_byte, rel=0.01 if "fp16" in case else 1e-3)
    assert Predicted(*both[0]["own"]) + Predicted(*both[1]["own"]) == whole


def test_each_case_learns_something_of_its_own(ranks: list[dict[str, Any]]) -> None:
    """Else the comparison above would not see an optimizer, or a clip, that is left out."""
    bits = {case: Predicted(*ranks[0][case]["whole"]).bits_per_byte for case in TRAINED}
    assert max(bits.values()) < 7.9
    assert abs(bits["sgd"] - bits["adamw"]) > 0.05
    assert abs(bits["clipped"] - bits["sgd"]) > 0.05


def test_captured_steps_of_text_are_the_eager_ones(ranks: list[dict[str, Any]], solo: dict[str, Any]) -> None:
    for one in (*ranks, solo):
        assert one["captured"]["engine"] == "graphed"
        assert one["captured"]["learnt"] == one["adamw"]["learnt"]


def test_experts_that_get_no_byte_on_one_rank_learn_from_the_other(ranks: list[dict[str, Any]]) -> None:
    """Their gradient there is zero and not missing, for which the group would wait; and the balance, which
    each rank moves by its own bytes, is the same on both after a validation, or the hashes would differ."""
    both = [rank["experts"] for rank in ranks]
    assert [each["ended"] for each in both] == ["COMPLETE", "COMPLETE"]
    assert both[0]["learnt"] == both[1]["learnt"]
    assert Predicted(*both[0]["own"]) + Predicted(*both[1]["own"]) == Predicted(*both[0]["whole"])
    assert both[0]["moved"] == both[1]["moved"]
    assert min(both[0]["moved"]) > 0.1 * max(both[0]["moved"])


def test_what_is_not_finite_on_one_rank_ends_the_trial_on_both(ranks: list[dict[str, Any]]) -> None:
    """And neither waits for the other: the trials after it are trained as if nothing had been. No log holds a
    validation that the journal does not."""
    ends = [rank["not finite"]["ended"] for rank in ranks]
    assert ends[0] == ends[1]
    assert ends[0].startswith("NotFinite: ")
    assert [rank["not finite"]["own"] for rank in ranks] == [None, None]
    assert [rank["not finite"]["whole"] for rank in ranks] == [None, None]
