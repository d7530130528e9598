"""What is refused before the clock starts, and what a person is told, by what the ranks said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.errors import WorldError
from aiperf.journal.events import RankReady
from aiperf.proposing.pace import block_seconds
from aiperf.rules import planned
from aiperf.run import before_release, master
from aiperf.wire.messages import Ready
from tests.journals import READY

SECOND = replace(READY, rank=2, host="node2")


@pytest.mark.parametrize(
    ("second", "what"),
    [
        (replace(SECOND, code_hash="other"), "code hash"),
        (replace(SECOND, data={**READY.data, "training_examples": 201}), "data"),
        (replace(SECOND, initial_weights="other"), "initial weights"),
    ],
)
def test_ranks_that_differ_are_refused(second: Ready, what: str) -> None:
    before_release.refuse_difference(SECOND, READY)
    with pytest.raises(WorldError) as raised:
        before_release.refuse_difference(second, READY)
    assert str(raised.value) == (
        f"rank 2 on node2 and rank 1 on node1 differ in {what}; use the same installation and data on all "
        f"nodes"
    )


def ranks_with(*ids: str, visible: int) -> list[Ready]:
    return [
        replace(READY, rank=1 + index, device_id=each, visible_devices=visible)
        for index, each in enumerate(ids)
    ]


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        (
            ranks_with("a", "a", visible=1),
            (
                "2 ranks on node1 have the same device; start one rank for each device and one more for the "
                "master, and make all devices of a host visible to each of its ranks"
            ),
        ),
        (
            ranks_with("a", "b", visible=8),
            (
                "node1 shows 8 devices to 2 training rank(s); start 9 ranks (one per device, plus the "
                "master), or make fewer devices visible"
            ),
        ),
    ],
)
def test_devices_that_are_shared_or_idle_are_refused(ranks: list[Ready], message: str) -> None:
    with pytest.raises(WorldError) as raised:
        before_release.refuse_idle_devices(ranks)
    assert str(raised.value) == message


@pytest.mark.parametrize("visible", [1, 2])  # a device for each rank alone, or both for both
def test_one_rank_for_each_device(visible: int) -> None:
    before_release.refuse_idle_devices(ranks_with("a", "b", visible=visible))


def test_processors_have_no_identity_and_may_be_shared() -> None:
    before_release.refuse_idle_devices(ranks_with("", "", visible=1))


def test_another_format_than_declared_is_refused() -> None:
    before_release.refuse_other_formats("bf16", [READY])
    with pytest.raises(WorldError, match=r"computed a convolution in fp16; unset the setting"):
        before_release.refuse_other_formats(
            "bf16", [READY, replace(SECOND, multiplies={"convolution": "fp16"})]
        )


@pytest.mark.parametrize(
    ("theirs", "held_up", "offset"),
    [
        (97.0, 0.2, -3.0),  # the master had just listened
        (97.0, 33.0, 0.0),
        (60.0, 33.0, -7.0),  # a stall explains no more than its own length
        (103.0, 33.0, 3.0),  # nor a clock that is ahead
        (99.9, 0.2, -0.1),
    ],
)
def test_a_word_that_lay_while_the_master_was_held_up_tells_no_wrong_time(
    theirs: float, held_up: float, offset: float
) -> None:
    assert before_release.clock_offset(theirs, 100.0, held_up) == pytest.approx(offset)


@pytest.mark.parametrize("offset", [-3.04, 3.04])
def test_clocks_that_differ_are_refused(offset: float) -> None:
    before_release.refuse_other_clocks([RankReady(0, READY, 0.9)])
    with pytest.raises(WorldError) as raised:
        before_release.refuse_other_clocks([RankReady(0, READY, 0.9), RankReady(1, SECOND, offset)])
    assert str(raised.value) == (
        "the clocks of node2 and the master differ by 3.0 s; synchronise them (chrony, ntp)"
    )


def test_ranks_that_are_late_are_named() -> None:
    groups = tuple((rank,) for rank in range(1, 14))
    assert str(before_release.not_in_time(1800.0, groups, [READY, SECOND])) == (
        "not all ranks were ready in 30 minutes, of 11 no word came: rank 3, 4, 5, 6, 7, 8, 9, 10, 11, 12; "
        "see logs/"
    )
    assert str(before_release.not_in_time(1800.0, ((1,),), [READY])) == (
        "not all ranks were ready in 30 minutes; see logs/"
    )


def test_a_person_is_told_of_other_directories_and_of_emulation_once() -> None:
    emulated = {"bf16": 1e9, "fp32": 1e10}
    apart = [replace(READY, formats=emulated), replace(SECOND, sees_run=False, formats=emulated)]
    assert before_release.notes(Path("/runs/one"), "bf16", [READY, SECOND]) == []
    assert before_release.notes(Path("/runs/one"), "bf16", apart) == [
        "/runs/one is not shared with node2: weights, and at the end rank logs, are sent over MPI",
        (
            "bf16 is emulated on a device, 10 times slower than fp32; --format auto chooses the fastest "
            "native format"
        ),
    ]


def test_a_host_observes_each_of_its_devices_once() -> None:
    ranks = [*ranks_with("a", "b", "a", visible=2), SECOND]
    assert before_release.devices_by_host(ranks) == {"node1": ("a", "b"), "node2": ()}


def test_a_stop_is_obeyed_within_the_time_that_the_rules_allow() -> None:
    assert master.STOP_SECONDS + block_seconds(10**6, 3600.0) < planned.STOP_SECONDS
