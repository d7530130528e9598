"""What a profile says of a recorded step."""

from __future__ import annotations

from math import isclose

from analysis.readings.profile.profile import MemoryRow, Profile
from nas.ops import OPS, TENSOR_OPS
from tests.analysis.readings.profile.recorded import GRAPH, RECORDED

FOUND = Profile.of(RECORDED)


def test_phases_and_kinds_add_up_to_the_step() -> None:
    assert FOUND.step_seconds == 10e-6
    assert FOUND.stopwatch_share == 1
    for parts in (FOUND.phases, FOUND.kinds):
        assert isclose(sum(part.seconds for part in parts), FOUND.step_seconds)
        assert isclose(sum(part.share for part in parts), 1)


def test_the_slowdown_is_the_median_of_pairs() -> None:
    assert FOUND.slowdown == 1.2


def test_the_operations_of_the_nodes_are_all_that_a_step_counts() -> None:
    counted = [node for node in FOUND.nodes if node.operations is not None]
    assert sum(node.operations or 0 for node in counted) == 4 * GRAPH.operations
    tensor = 4 * GRAPH.cost.train.price(TENSOR_OPS)
    assert sum(node.tensor_operations or 0 for node in counted) == tensor
    names = ["conv", "add", "pool", "classifier", "loss", "sums of gradients"]
    assert [node.name for node in counted] == names


def test_the_time_of_a_node_is_the_median_of_the_steps() -> None:
    """The first step took twice as long."""
    conv = FOUND.nodes[0]
    assert (conv.forward_seconds, conv.backward_seconds) == (1e-6, 2e-6)
    cost = sum(each.train.price(OPS) for each in GRAPH.charged(GRAPH.nodes[0]))
    assert conv.operations == 4 * cost
    assert conv.ops_per_second == 4 * cost / 3e-6


def test_what_waits_for_other_ranks_is_no_time_of_a_node() -> None:
    nodes = sum(node.seconds for node in FOUND.nodes)
    phases = {part.name: part.seconds for part in FOUND.phases}
    passes = ("forward", "loss", "backward", "backward beside all-reduce")
    # The handing over, which is no waiting, stands in both.
    assert isclose(nodes, sum(phases[name] for name in passes) + 0.1e-6)


def test_memory_that_is_known_and_that_is_not() -> None:
    assert FOUND.memory == [
        MemoryRow("weights", 116, 116, 116),
        MemoryRow("statistics", 0, 0, 0),
        MemoryRow("gradients", 116, 116, 0),
        MemoryRow("optimizer state", 116, 116, 116),
        MemoryRow("examples", 288, 288, 288),
        MemoryRow("activations", 1_000, 1_072, 1_200),
        MemoryRow("more at the peak", 364, 212, None),
        MemoryRow("peak", 2_000, 1_920, 1_720),
    ]
