"""Who exchanges data with whom, and what the parts of the ranks come to, whatever they lack."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiperf.wire.fabric import assembled, rounds
from aiperf.wire.messages import DIED, Coupled, CoupledPart, FabricPart, TimedAllReduce
from nas.bounded import LONGEST_LINE
from nas.record import encode


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        (0, ()),
        (1, ()),
        (2, [{(0, 1)}]),
        (3, [{(0, 1)}, {(1, 2)}]),
        (5, [{(0, 2), (1, 3)}, {(1, 2), (3, 4)}, {(2, 4), (3, 0)}]),
        (6, [{(0, 3), (1, 4), (2, 5)}, {(0, 1), (2, 3), (4, 5)}]),
        (4, [{(0, 2), (1, 3)}, {(0, 1), (2, 3)}]),
    ],
)  # fmt: skip
def test_every_host_meets_the_one_at_half_of_the_width_then_at_a_quarter(
    hosts: int, expected: object
) -> None:
    assert [set(pairs) for pairs in rounds(hosts)] == list(expected)  # type: ignore[call-overload]


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


def test_a_rate_of_a_host_is_that_of_its_ranks_and_the_slower_end_of_a_pair_counts() -> None:
    found = assembled(PARTS, RANKS)
    assert (found.ranks, found.backend, found.over_all, found.seconds) == (4, "nccl", ONCE, 4.0)
    assert found.rounds == ((30.0,),)
    assert found.transports == {"NET/IB": 4, "P2P": 8}
    assert [(node.host, node.within, node.rdma_ports) for node in found.nodes] == [
        ("node0", ONCE, 4),
        ("node1", ONCE, 4),
    ]
    assert found.whole


def stopped(rank: int, done: int, reason: str) -> FabricPart:
    return replace(PARTS[rank - 1], done=done, reason=reason, pairs=(), over_all=())


@pytest.mark.parametrize(
    ("parts", "reasons", "missing"),
    [
        # One pair hangs, and all others wait for it.
        (
            [stopped(rank, 5 if rank in (1, 3) else 6, f"as {rank}") for rank in RANKS],
            ["rank 1, as 1", "rank 3, as 3"],
            (),
        ),
        # Whose process died is the cause, however far it was.
        ([*PARTS[:3], stopped(4, DIED, "killed by signal 9")], ["", "rank 4, killed by signal 9"], ()),
        (
            [*(stopped(rank, 7, "waited") for rank in (1, 2)), stopped(4, DIED, "died")],
            ["", "rank 4, died"],
            (3,),
        ),
        ([], [], RANKS),
    ],
)
def test_of_what_does_not_end_the_hosts_are_named_for_which_the_others_wait(
    parts: list[FabricPart], reasons: list[str], missing: tuple[int, ...]
) -> None:
    found = assembled(parts, RANKS)
    assert ([node.reason for node in found.nodes], found.missing) == (reasons, missing)
    assert not found.whole


def coupled(part: FabricPart, **fields: object) -> FabricPart:
    timed = CoupledPart("", 224, 256, 20, alone_seconds=10.0 * part.rank, seconds=50.0, done=5)
    return replace(part, coupled=replace(timed, **fields))  # type: ignore[arg-type]


HALF_DONE = [*map(coupled, PARTS[:2]), *(coupled(p, done=4, reason=f"as {p.rank}") for p in PARTS[2:])]
DEAD = coupled(PARTS[1], done=DIED, reason="died")
ONE_DEAD = [coupled(PARTS[0], done=4, reason="waits"), DEAD, stopped(3, 8, "hangs")]


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([coupled(part) for part in PARTS], ""),
        (HALF_DONE, "node1: rank 3, as 3"),
        (ONE_DEAD, "node0: rank 2, died; node1: rank 3, hangs"),
    ],
)
def test_the_coupled_control_is_that_of_all_ranks_or_names_those_that_were_waited_for(
    parts: list[FabricPart], reason: str
) -> None:
    found = assembled(parts, RANKS).coupled
    assert found is not None
    assert found.reason == reason
    if not reason:
        rate = 256 * 20 * (1 / 10 + 1 / 20 + 1 / 30 + 1 / 40)
        assert found == Coupled("", 224, 256, 20, 50.0, pytest.approx(rate, rel=1e-4))
    assert assembled(PARTS, RANKS).coupled is None


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
