"""Who exchanges data with whom, and what the parts of the ranks come to, whatever they lack."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiperf.wire.fabric import assembled, rounds
from aiperf.wire.reports import DIED, CoupledPart, FabricPart, TimedAllReduce
from nas.bounded import LONGEST_LINE
from nas.record import encode
from tests.tables import ComesTo


@given(st.integers(2, 600))
@settings(max_examples=30)
def test_all_hosts_talk_at_once_and_none_rests_in_every_round(hosts: int) -> None:
    found, seen = rounds(hosts), set[int]()
    for pairs in found:
        once = [host for pair in pairs for host in pair]
        assert len(once) == len(set(once)) == hosts - hosts % 2
        seen.update(once)
    assert seen == set(range(hosts))
    assert len(found) == hosts.bit_length() - 1 + hosts % 2


ONCE = (TimedAllReduce(65536, 1e-3),)
PARTS = tuple(
    FabricPart(
        rank,
        f"node{(rank - 1) // 2}",
        (rank - 1) // 2,
        "nccl",
        within=ONCE,
        over_all=ONCE,
        pairs=(10.0 * rank,),
        transports={"P2P": 2, "NET/IB": 1},
        rdma_ports=4,
        seconds=float(rank),
        done=9,
    )
    for rank in (1, 2, 3, 4)
)
RANKS = (1, 2, 3, 4)


def stopped(rank: int, done: int, reason: str) -> FabricPart:
    return replace(PARTS[rank - 1], done=done, reason=reason, pairs=(), over_all=())


def reasons(parts: list[FabricPart]) -> tuple[list[str], tuple[int, ...]]:
    """By host; and the ranks that reported nothing."""
    found = assembled(parts, RANKS)
    assert not found.whole
    return [node.reason for node in found.nodes], found.missing


def coupled(part: FabricPart, **fields: object) -> FabricPart:
    timed = CoupledPart("", 224, 256, 20, alone_seconds=10.0 * part.rank, seconds=50.0, done=5)
    return replace(part, coupled=replace(timed, **fields))  # type: ignore[arg-type]


HALF_DONE = [*map(coupled, PARTS[:2]), *(coupled(p, done=4, reason=f"as {p.rank}") for p in PARTS[2:])]
DEAD = coupled(PARTS[1], done=DIED, reason="died")
ONE_DEAD = [coupled(PARTS[0], done=4, reason="waits"), DEAD, stopped(3, 8, "hangs")]


def test_who_meets_whom_and_for_whom_the_others_wait(comes_to_what_was_read: ComesTo) -> None:
    """Every host meets the one at half of the width, then at a quarter. The rate of a host is that of its
    ranks, and the slower end of a pair counts. Whose process died is the cause, however far it was. The
    coupled control is that of all ranks."""
    comes_to_what_was_read("fabric_parts.txt", {**globals(), "rounds": rounds})


@pytest.mark.parametrize(
    ("hosts", "reason", "within", "paired"),
    [
        (4096, "", True, True),
        (9408, "", False, True),
        (9408, "no answer " * 30, False, True),
        (32768, "", False, False),
    ],
)
def test_the_fabric_of_the_largest_machines_is_a_line_that_a_journal_may_have(
    hosts: int, reason: str, within: bool, paired: bool
) -> None:
    """With names that are hidden."""
    once = tuple(TimedAllReduce(65536 * 8**power, 8**power / 3e4) for power in range(5))
    pairs = (1e10 / 3,) * (hosts.bit_length() - 1)
    parts = [
        FabricPart(rank, f"host-{rank:022}", rank - 1, "nccl", once, once, pairs, reason=reason)
        for rank in range(1, 1 + hosts)
    ]
    found = assembled(parts, range(1, 1 + hosts))
    assert len(json.dumps(encode(found))) < LONGEST_LINE
    assert (bool(found.nodes[0].within), bool(found.rounds)) == (within, paired)
    assert (len(found.nodes), found.whole) == (hosts, not reason)
