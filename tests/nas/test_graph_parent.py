"""A graph that is inferred with its parent's help is the graph that is inferred without it."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from nas.graph import Graph, Node, once
from nas.layers import Conv2d, ShapeError
from nas.morphisms import MIX, MorphismError
from nas.seeds import residual, resnet18, resnet50


def grown(graph: Graph, steps: int, rng: random.Random) -> list[Graph]:
    """A lineage, the oldest first."""
    lineage = [graph]
    for kind in rng.choices(list(MIX), k=steps):
        try:
            lineage.append(kind.propose(lineage[-1], rng).apply(lineage[-1]))
        except (MorphismError, ShapeError):
            continue
    return lineage


def figures(graph: Graph) -> tuple[object, ...]:
    return (
        list(graph.shapes.items()),
        graph.rows,
        graph.key,
        graph.weights,
        graph.num_activations,
        graph.operations,
    )


@pytest.mark.parametrize("seed", [residual(), resnet18((3, 64, 64), 10), resnet50((3, 64, 64), 10)])
@pytest.mark.parametrize("random_seed", range(3))
def test_whoever_the_parent_is(seed: Graph, random_seed: int) -> None:
    lineage = grown(seed, 30, random.Random(random_seed))
    assert len(lineage) > 15
    smaller = Graph((3, 32, 32), resnet18().nodes)
    for parent, child in pairwise(lineage):
        alone = figures(Graph(child.input, child.nodes))
        for other in (parent, child, seed, lineage[-1], smaller):
            assert figures(Graph(child.input, child.nodes, other)) == alone


def test_a_change_of_shape_is_followed_to_all_that_read_it() -> None:
    parent = resnet18((3, 64, 64), 10)
    wide = tuple(
        replace(node, layer=replace(node.layer, channels=96))
        if node.name == "stage2.block1.1.conv" and isinstance(node.layer, Conv2d)
        else node
        for node in parent.nodes
    )
    child = Graph(parent.input, wide, parent)
    changed = [name for name in child.shapes if child.shapes[name] != parent.shapes[name]]
    assert changed == ["stage2.block1.1.conv", "stage2.block1.1.bn", "stage2.block1.1.relu"]
    assert child.weights["stage2.block1.2.conv.weight"] == (128, 96, 3, 3)


def hostile(nodes: tuple[Node, ...]) -> dict[str, tuple[Node, ...]]:
    one, two = nodes[3], nodes[4]
    return {
        "a node is missing": nodes[:3] + nodes[4:],
        "a node stands below its reader": (*nodes[:3], two, one, *nodes[5:]),
        "a node appears twice": (*nodes[:4], one, *nodes[4:]),
        "the end is missing": nodes[:-2],
        "widths differ": tuple(
            replace(node, layer=Conv2d(5)) if node.name == "stage1.block1.2.conv" else node for node in nodes
        ),
    }


@pytest.mark.parametrize("fault", hostile(residual().nodes))
def test_what_does_not_fit_is_refused_with_the_same_words(fault: str) -> None:
    parent = residual()
    nodes = hostile(parent.nodes)[fault]
    with pytest.raises(ShapeError) as alone:
        Graph(parent.input, nodes)
    with pytest.raises(ShapeError) as helped:
        Graph(parent.input, nodes, parent)
    assert str(helped.value) == str(alone.value)


def test_once_is_once_for_each_graph() -> None:
    asked = []

    @once
    def size(graph: Graph) -> int:
        asked.append(graph)
        return len(graph.nodes)

    small, large = residual(), resnet18()
    assert [size(small), size(large), size(small)] == [len(small.nodes), len(large.nodes), len(small.nodes)]
    assert len(asked) == 2
