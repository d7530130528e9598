"""What is refused before the clock starts, and what the user reads, by what the ranks reported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from aiperf.journal.events import RankReady
from aiperf.proposing.pace import block_seconds
from aiperf.rules import trial_length
from aiperf.run import initialisation, master
from aiperf.run.groups import devices_by_host
from aiperf.run.handler import refuse_difference
from aiperf.wire.reports import NOTE, Ready
from tests.journals import READY
from tests.tables import ComesTo

SECOND = replace(READY, rank=2, host="node2")


def differing(**changes: object) -> None:
    refuse_difference(replace(SECOND, **changes), READY)  # type: ignore[arg-type]


def with_devices(*ids: str, visible: int) -> list[Ready]:
    return [
        replace(READY, rank=1 + index, device_id=each, visible_devices=visible)
        for index, each in enumerate(ids)
    ]


def idle(*ids: str, visible: int) -> None:
    initialisation.refuse_idle_devices(with_devices(*ids, visible=visible))


def apart(seconds: float, uncertainty: float | None = None) -> None:
    ready = [RankReady(0, READY, 0.9), RankReady(1, SECOND, seconds, uncertainty)]
    initialisation.refuse_other_clocks(ready)


def computing(format: str) -> None:
    ready = [READY, replace(SECOND, multiplies={"convolution": format})]
    initialisation.refuse_other_formats("bf16", ready)


def test_what_makes_work_incomparable_or_a_device_idle_is_refused(comes_to_what_was_read: ComesTo) -> None:
    comes_to_what_was_read("refused_ranks.txt", globals())


def test_ranks_that_are_late_are_named() -> None:
    groups = tuple((rank,) for rank in range(1, 14))
    late = ", of 11 no word came: rank 3, 4, 5, 6, 7, 8, 9, 10, 11, 12"
    for which, ready, named in ((groups, [READY, SECOND], late), (((1,),), [READY], "")):
        told = str(initialisation.not_in_time(1800.0, which, ready))
        assert told == f"not all ranks were ready in 30 minutes{named}; see logs/"


def test_a_person_is_told_of_other_directories_emulation_and_unused_devices_once() -> None:
    native = "--format auto chooses the fastest native format"
    changes = {"formats": {"bf16": 1e9, "fp32": 1e10}, "settings": {NOTE: "no driver"}}
    apart = [replace(READY, **changes), replace(SECOND, sees_run=False, **changes)]  # type: ignore[arg-type]
    assert initialisation.notes(Path("/runs/one"), "bf16", [READY, SECOND]) == []
    assert initialisation.notes(Path("/runs/one"), "bf16", apart) == [
        "/runs/one is not shared with node2: weights, and at the end rank logs, are sent as messages",
        f"bf16 is emulated on a device, 10 times slower than fp32; {native}",
        "node1 and 1 more: no driver",
    ]


def test_a_host_observes_each_of_its_devices_once() -> None:
    ranks = [*with_devices("a", "b", "a", visible=2), SECOND]
    assert devices_by_host(ranks) == {"node1": ("a", "b"), "node2": ()}


def test_a_stop_is_obeyed_within_the_time_that_the_rules_allow() -> None:
    assert master.STOP_SECONDS + block_seconds(10**6, 3600.0) < trial_length.STOP_SECONDS
