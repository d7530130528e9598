"""The counter against what was really executed, by two witnesses that know nothing of our rules."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings

from nas.graph import Graph
from nas.layers import ShapeError
from nas.morphisms import MIX, MorphismError
from nas.seeds import residual, resnet18, resnet50
from tests.nas.graphs import graphs, grouped
from tests.nas.oracles import LIMIT_SECONDS, Executed, by_torch, by_us, calls, executed, operations

pytestmark = pytest.mark.timeout(LIMIT_SECONDS + 20)


def grown(graph: Graph, seed: int, generations: int = 8) -> Graph:
    """A descendant by random morphisms."""
    rng = random.Random(seed)
    while generations:
        kind = rng.choices(list(MIX), list(MIX.values()))[0]
        try:
            graph = kind.propose(graph, rng).apply(graph)
        except (MorphismError, ShapeError):
            continue
        generations -= 1
    return graph


NETWORKS: dict[str, Callable[[], Graph]] = {
    "resnet50 v1.5": resnet50,
    "grouped": grouped,
    "child of residual": lambda: grown(residual(), 1),
    "child of resnet18": lambda: grown(resnet18((3, 32, 32), 100), 2),
    "child of grouped": lambda: grown(grouped(), 3),
}


@pytest.fixture(scope="module")
def steps(tmp_path_factory) -> dict[str, Executed]:
    graphs = [build() for build in NETWORKS.values()]
    return dict(zip(NETWORKS, executed(graphs, tmp_path_factory.mktemp("oracle"))))


@pytest.mark.parametrize("name", NETWORKS)
def test_counter_equals_what_onednn_executed(steps, name):
    step = steps[name]
    assert step.calls == calls(step.graph)
    assert step.operations == operations(step.graph, step.batch)


def test_calls_of_resnet50(steps):
    reference = json.loads((Path(__file__).parent / "counts.json").read_text())["nets"]["resnet50_v1.5"]
    counted = steps["resnet50 v1.5"].calls.items()
    found = {direction: num for (primitive, direction), num in counted if primitive == "convolution"}
    assert found == reference["onednn_calls"]


@pytest.mark.parametrize(
    "build", [grouped, *[lambda seed=seed: grown(residual(), seed) for seed in range(4)]]
)
def test_counter_equals_torch_on_groups_and_grown_children(build):
    graph = build()
    assert by_us(graph) == by_torch(graph)


@given(graphs())
@settings(max_examples=40)
def test_counter_equals_torch_on_any_graph(graph):
    assert by_us(graph) == by_torch(graph)
