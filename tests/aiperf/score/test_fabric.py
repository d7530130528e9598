"""What the figures of a fabric say, and in which words."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from aiperf.journal.events import FabricMeasured, Released
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
from aiperf.wire.reports import Coupled, Fabric, FabricNode, TimedAllReduce
from analysis.readings.fabric import fabric_record, fabric_text
from analysis.readings.score_figures import figures
from analysis.submissions.schema import schema
from tests.journals import Scene, ready_alone, replayed
from tests.tables import ComesTo

SUMS = (TimedAllReduce(64 << 10, 2e-4), TimedAllReduce(256 << 20, 0.05))
NODES = tuple(FabricNode(f"node{number}", rdma_ports=4) for number in range(8))
COUPLED = Coupled("", 224, 256, 20, 8.0, 49_350.0)  # 40,960 images/s
DIED = replace(COUPLED, reason="node7: died")
HEALTHY = Fabric(
    64, "nccl", NODES, SUMS, ((4e10,) * 4,) * 3, {"P2P": 448, "NET/IB": 64}, 30.0, coupled=COUPLED
)


def with_slow(**rates: float) -> Fabric:
    """Pairs by round and place, as r0p1, with other rates."""
    changed = [list(each) for each in HEALTHY.rounds]
    for name, rate in rates.items():
        changed[int(name[1])][int(name[3])] = rate
    return replace(HEALTHY, rounds=tuple(map(tuple, changed)))


def slow(fabric: Fabric) -> tuple[list[Any], list[Any]]:
    """Pairs and hosts: one of a host whose pair is below half of the median of its round, in most rounds."""
    found = slow_pairs(fabric)
    hosts = slow_hosts(fabric, found)
    return [pair.hosts for pair in found], [(each.host, each.rounds, each.of) for each in hosts]


def run(fabric: Fabric | None, hosts: int = 8, minutes: float = 60.0, rules: int = 2) -> Replay:
    """A run of a rank per host."""
    timed = ready_alone(range(1, 1 + hosts), rules=rules, config=Scene(minutes=minutes).config)
    measured = [] if fabric is None else [(2.0, FabricMeasured(fabric))]
    found = replayed([*timed, *measured, (3.0, Released(None))])
    assert not found.faults
    return found


ETHERNET = "sockets on eth0 at 10000 Mbit/s"
REASON = "round 1 of 3 of the pairs, with node3: no answer in 60 s"
HUNG = (*NODES[:7], FabricNode("node7", reason=REASON))
WITHIN = (
    FabricNode("node0", within=SUMS),
    FabricNode("node1", within=(SUMS[0], TimedAllReduce(256 << 20, 0.1))),
)


ONE_WITHOUT = replace(HEALTHY, transports={"NET/Socket": 64}, nodes=(*NODES[:7], FabricNode("node7")))
UNMEASURED = replace(HEALTHY, over_all=(), rounds=(), transports={}, missing=(9,), nodes=HUNG)
OF_ONE_HOST = Fabric(
    8, "nccl", WITHIN[:1], (), (), {"P2P": 56}, 9.0, coupled=Coupled("", 224, 256, 20, 8.0, 6_000.0)
)
OF_GLOO = Fabric(16, "gloo", WITHIN, SUMS, ((1.2e9,),), {ETHERNET: 16}, 9.0)


def coupled(replay: Replay) -> str:
    """What devices keep of their rate if they train together."""
    return figures(replay, score(replay, {}))["coupled_share"].line


def test_what_figures_of_a_fabric_say(comes_to_what_was_read: ComesTo) -> None:
    """The expected share falls when gradients take longer than the backward pass."""
    functions = {each.__name__: each for each in (expected_share, fabric_text, math.isclose, reduce_seconds)}
    comes_to_what_was_read("fabric.txt", {**globals(), **functions, "bus": bus_bandwidth})


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


def fault(**fields: Any) -> str:
    """The fault of a figure that nobody can measure; it is shown nowhere."""
    found = run(HEALTHY)
    found.leg.fabric, found.leg.released = None, None
    found.add(4.0, FabricMeasured(replace(HEALTHY, **fields)))
    assert fabric_record(found) == {}
    (only,) = found.faults
    return only.text
