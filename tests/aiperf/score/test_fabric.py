"""What the figures of a fabric say, and in which words."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from aiperf.journal.events import FabricMeasured, LegBegan, Opened, RankReady, Released
from aiperf.journal.replay import Replay
from aiperf.score.fabric import (
    bus_bandwidth,
    expected_share,
    is_known,
    reduce_seconds,
    slow_hosts,
    slow_pairs,
)
from aiperf.score.score import score
from aiperf.wire.messages import Coupled, Fabric, FabricNode, TimedAllReduce
from analysis.readings.fabric import fabric_record, fabric_text
from analysis.readings.score_figures import figures
from analysis.submissions.schema import schema
from tests.journals import READY, Scene, told

OPENED = next(event for _, event in told(Scene(minutes=0.05)) if isinstance(event, Opened))
SUMS = (TimedAllReduce(64 << 10, 2e-4), TimedAllReduce(256 << 20, 0.05))
NODES = tuple(FabricNode(f"node{number}", rdma_ports=4) for number in range(8))
LINKS = "; the bus bandwidth alone would leave 1.00"
RESNET = "ResNet-50 v1.5 at 224²"
COUPLED = Coupled("", 224, 256, 20, 8.0, 49_350.0)  # 40,960 images/s
DIED = replace(COUPLED, reason="node7: died")
KEPT = f"0.83 of uncoupled (40,960 of 49,350 images/s; {RESNET}, batch 256 on each of 64 ranks{LINKS})"
HEALTHY = Fabric(
    64, "nccl", NODES, SUMS, ((4e10,) * 4,) * 3, {"P2P": 448, "NET/IB": 64}, 30.0, coupled=COUPLED
)


def with_slow(**rates: float) -> Fabric:
    """Pairs by round and place, as r0p1, with other rates."""
    changed = [list(each) for each in HEALTHY.rounds]
    for name, rate in rates.items():
        changed[int(name[1])][int(name[3])] = rate
    return replace(HEALTHY, rounds=tuple(map(tuple, changed)))


@pytest.mark.parametrize(("ranks", "expected"), [(1, 0.0), (2, 1e9), (4, 1.5e9), (8, 1.75e9)])
def test_bus_bandwidth_is_that_of_nccl_tests(ranks: int, expected: float) -> None:
    assert bus_bandwidth(TimedAllReduce(10**9, 1.0), ranks) == expected
    assert bus_bandwidth(TimedAllReduce(10**9, 0.0), ranks) == 0.0


OF_NODE5 = [("node1", "node5"), ("node5", "node7"), ("node4", "node5")]


@pytest.mark.parametrize(
    ("fabric", "pairs", "hosts"),
    [
        (HEALTHY, [], []),
        (with_slow(r0p1=2e10), [], []),  # half of the median is not below it
        (with_slow(r0p1=1.9e10), [("node1", "node5")], []),
        # node5 is in the second pair of the first round, the fourth of the second, the third of the third.
        (with_slow(r0p1=1e10, r1p3=9e9), [("node5", "node7"), ("node1", "node5")], [("node5", 2, 3)]),
        (with_slow(r0p1=1e10, r1p3=1e10, r2p2=1e10), OF_NODE5, [("node5", 3, 3)]),
        (replace(HEALTHY, nodes=NODES[:6], rounds=((4e10, 1.0, 4e10),) * 2), [], []),  # three are too few
        (replace(HEALTHY, rounds=((0.0,) * 4,) * 9), [], []),  # as in a forged journal
    ],
)  # fmt: skip
def test_a_pair_below_half_of_its_round_is_slow_and_a_host_in_most_rounds(
    fabric: Fabric, pairs: list[Any], hosts: list[Any]
) -> None:
    found = slow_pairs(fabric)
    assert [pair.hosts for pair in found] == pairs
    assert [(each.host, each.rounds, each.of) for each in slow_hosts(fabric, found)] == hosts


def run(fabric: Fabric | None, hosts: int = 8, minutes: float = 60.0, rules: int = 2) -> Replay:
    """A run of a rank per host."""
    found, ranks = Replay(), range(1, 1 + hosts)
    config = replace(OPENED.config, limits=replace(OPENED.config.limits, minutes=minutes))
    found.add(0.0, replace(OPENED, rules=rules, config=config))
    found.add(0.0, LegBegan(0, "2026-01-01T00:00:00.000+00:00", (), tuple((rank,) for rank in ranks)))
    for rank in ranks:
        found.add(1.0, RankReady(rank - 1, replace(READY, rank=rank, host=f"node{rank}"), 0.0))
    if fabric is not None:
        found.add(2.0, FabricMeasured(fabric))
    found.add(3.0, Released(None))
    assert not found.faults
    return found


OVER_ALL = "all-reduce over 64 ranks: 10.6 GB/s of bus bandwidth at 256 MiB, 0.2 ms for 64 KiB"
HALF = "4 pairs of hosts at half of the width, all at once: median 40.0 GB/s in each direction, least {}"
UNKNOWN = "nccl over unknown transports"
NCCL = "nccl over P2P (448), NET/IB (64)"
ETHERNET = "sockets on eth0 at 10000 Mbit/s"
SLOWEST = (
    "all-reduce over 8 ranks within node1, the slowest of 2 hosts: 4.70 GB/s of bus bandwidth at 256 MiB, "
    "0.2 ms for 64 KiB"
)
REASON = "round 1 of 3 of the pairs, with node3: no answer in 60 s"
HUNG = (*NODES[:7], FabricNode("node7", reason=REASON))
WITHIN = (
    FabricNode("node0", within=SUMS),
    FabricNode("node1", within=(SUMS[0], TimedAllReduce(256 << 20, 0.1))),
)


ALL_AT_ONCE = (OVER_ALL, HALF.format("40.0 GB/s"))
SLOW = (
    "slow: node5 in 2 of 3 rounds, 9.00 GB/s at the least, where the median was 40.0 GB/s",
    "slow: node2 with node3 in round 3, 1.00 GB/s, where the median was 40.0 GB/s",
)
TWO_HOSTS = (
    "all-reduce over 16 ranks: 10.1 GB/s of bus bandwidth at 256 MiB, 0.2 ms for 64 KiB",
    SLOWEST,
    "the two hosts: 1.20 GB/s in each direction",
    f"gloo over {ETHERNET} (16)",
)
SOCKETS = ("nccl over NET/Socket (64)", "7 hosts of 8 have an active RDMA port, and sockets were used")
ONE_WITHOUT = replace(HEALTHY, transports={"NET/Socket": 64}, nodes=(*NODES[:7], FabricNode("node7")))
UNMEASURED = replace(HEALTHY, over_all=(), rounds=(), transports={}, missing=(9,), nodes=HUNG)
OF_GLOO = Fabric(16, "gloo", WITHIN, SUMS, ((1.2e9,),), {ETHERNET: 16}, 9.0)


@pytest.mark.parametrize(
    ("replay", "expected"),
    [
        (run(None, rules=1), ()),
        (run(None, hosts=1), ("one device, so nothing lies between devices",)),
        (run(None), ("unknown (not measured)",)),
        (run(None, minutes=0.5), ("unknown (a tenth of the run is less than the 10 s that it takes)",)),
        (run(HEALTHY), (*ALL_AT_ONCE, NCCL)),
        (run(with_slow(r0p1=1e10, r1p3=9e9, r2p1=1e9)), (OVER_ALL, HALF.format("10.0 GB/s"), NCCL, *SLOW)),
        (run(OF_GLOO, 2), TWO_HOSTS),
        (run(ONE_WITHOUT), (*ALL_AT_ONCE, *SOCKETS)),
        (run(replace(HEALTHY, transports={})), (*ALL_AT_ONCE, UNKNOWN)),
        (run(UNMEASURED), (f"unknown (node7: {REASON}; 1 rank reported nothing, rank 9 first)",)),
    ],
)
def test_a_run_says_what_lies_between_its_devices(replay: Replay, expected: tuple[str, ...]) -> None:
    assert tuple(fabric_text(replay)) == expected


def test_machines_read_the_figures_and_what_follows_from_them() -> None:
    assert fabric_record(run(None)) == {}
    record = fabric_record(run(with_slow(r0p1=1e10, r1p3=9e9)))["fabric"]
    jsonschema.validate(json.loads(json.dumps(record)), schema("result-1")["properties"]["fabric"])
    assert (record["known"], record["ranks"], record["backend"]) == (True, 64, "nccl")
    assert record["bus_bytes_per_second"] == pytest.approx(2 * 63 / 64 * (256 << 20) / 0.05)
    assert [pair["hosts"] for pair in record["slow_pairs"]] == [["node5", "node7"], ["node1", "node5"]]
    assert [host["host"] for host in record["slow_hosts"]] == ["node5"]
    assert not is_known(replace(HEALTHY, over_all=()))
    assert record["coupled_share"] == pytest.approx(0.83, rel=1e-3)
    assert not fabric_record(run(replace(HEALTHY, missing=(1,))))["fabric"]["known"]
    older = fabric_record(run(replace(HEALTHY, coupled=None)))["fabric"]
    assert not older.keys() & {"coupled", "coupled_share"}, "what a package claims must still follow from it"


@pytest.mark.parametrize(
    ("replay", "expected"),
    [
        (run(HEALTHY, rules=3), KEPT),
        (run(replace(HEALTHY, coupled=DIED), rules=3), "unknown (node7: died)"),
        (run(replace(HEALTHY, coupled=None), rules=3), "unknown (as the fabric)"),
        (run(None, rules=3), "not measured (several ranks, before the span)"),
        (run(HEALTHY, rules=2), "not measured (several ranks, before the span)"),
    ],
)  # fmt: skip
def test_a_run_says_what_its_devices_keep_of_their_rate_if_they_train_together(
    replay: Replay, expected: str
) -> None:
    assert figures(replay, score(replay, {}))["coupled_share"].line == expected


@pytest.mark.parametrize(
    ("sum_seconds", "expected"), [(0.0, 1.0), (2.0, 1.0), (3.0, 0.75), (30.0, 3.0 / 31.0)]
)
def test_the_expected_share_falls_when_gradients_take_longer_than_the_backward_pass(
    sum_seconds: float, expected: float
) -> None:
    assert expected_share(3.0, sum_seconds) == pytest.approx(expected)
    assert expected_share(3.0, sum_seconds, 26.0) == pytest.approx(3.0 / (1.0 + sum_seconds + 26.0))
    rate = bus_bandwidth(SUMS[-1], 64)
    assert reduce_seconds(HEALTHY, 64) == pytest.approx(2 * 63 / 64 * 64 / rate)


@pytest.mark.parametrize(
    "fields",
    [
        {"rounds": ((-1.0, 0.0, 0.0, 0.0),)},  # whose median is 0
        {"over_all": (TimedAllReduce(1 << 20, 5e-324),)},
        {"over_all": (TimedAllReduce(1 << 20, -1.0),)},
        {"nodes": (FabricNode("node0", within=(TimedAllReduce(0, 1.0),)),)},
        {"nodes": (FabricNode("node0", rdma_ports=-1),)},
        {"transports": {"P2P": -1}},
        {"seconds": -1.0},
        {"ranks": 7},
        {"ranks": 10**400},
        {"coupled": replace(COUPLED, seconds=0.0)},
        {"coupled": replace(COUPLED, uncoupled_per_second=0.0)},
        {"coupled": replace(COUPLED, batch_size=10**400)},
        {"coupled": replace(COUPLED, steps=0)},
        {"coupled": replace(DIED, steps=-1)},
    ],
)
def test_a_figure_that_nobody_can_measure_is_a_fault_and_shown_nowhere(fields: dict[str, Any]) -> None:
    found = run(HEALTHY)
    found.leg.fabric, found.leg.released = None, None
    found.add(4.0, FabricMeasured(replace(HEALTHY, **fields)))
    assert [each.text for each in found.faults] == ["FabricMeasured has a figure that nobody can measure"]
    assert fabric_record(found) == {}
