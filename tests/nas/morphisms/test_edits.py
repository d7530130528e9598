"""Every morphism as an edit of a graph: what it makes, how it is recorded, where it applies, its speed."""

from __future__ import annotations

import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable

import pytest

from nas.graph import Graph
from nas.morphisms import MIX, TEXT_MIX, DeepenBottleneck, Morphism, MorphismError
from nas.morphisms.text import DeepenPlain, Upcycle
from nas.reader import members
from nas.record import decode, encode, graph_from_json, graph_to_json
from nas.seeds import residual, resnet50
from nas.text_seeds import TEXT_SEEDS
from nas.weights import digest
from tests.nas.grown import cases, kinds_for, randomised, standard

every_kind = pytest.mark.parametrize("kind", [*MIX, *TEXT_MIX])


def test_what_each_morphism_makes_is_as_it_was_read(as_it_was_read: Callable[[str, str], None]) -> None:
    """For one morphism of each kind and of two parents each: layers that are new, changed or gone, and what
    a training example costs more."""
    lines = []
    for kind in (*MIX, *TEXT_MIX):
        found = {name: (parent, morphism) for name, parent, morphism in cases(kind, 1)}
        for name, (parent, morphism) in list(found.items())[:2]:
            child = morphism.apply(parent)
            lines.append(f"{morphism} of {name}: {child.operations - parent.operations:+,}")
            lines += [f"  - {gone}" for gone in parent.node if gone not in child.node]
            for node in child.nodes:
                if node != parent.node.get(node.name):
                    sign = "*" if node.name in parent.node else "+"
                    lines.append(f"  {sign} {node.name} = {node.layer} of {', '.join(node.inputs)}")
    as_it_was_read("\n".join([*lines, ""]), "edits.txt")


@every_kind
def test_what_is_proposed_applies_is_recorded_and_leaves_its_parent_alone(kind: type[Morphism]) -> None:
    places: Counter[str] = Counter()
    for name, parent, morphism in cases(kind, 2):
        places[name] += 1
        assert type(morphism) is kind
        weights, shown = randomised(parent, 1), repr(parent)
        before = digest(weights)
        child = morphism.apply(parent)
        assert child.key != parent.key
        assert (child.input, child.classes, child.head) == (parent.input, parent.classes, parent.head)
        # Names survive, in their order; new ones are short however long the lineage.
        kept = [node.name for node in child.nodes if node.name in parent.node]
        assert kept == [name for name in parent.node if name in child.node]
        assert (len(kept) < len(parent.nodes)) == (kind is Upcycle)
        assert max(map(len, child.node.keys() - parent.node.keys()), default=0) < 24
        assert morphism.apply(Graph(parent.input, parent.nodes, head=parent.head)) == child
        assert decode(Morphism, json.loads(json.dumps(encode(morphism)))) == morphism
        assert graph_from_json(json.dumps(graph_to_json(child))) == child
        carried = morphism.carry(parent, weights)
        shapes = {tensor: values.shape for tensor, values in carried.items()}
        assert shapes == {**child.weights, **child.statistics}
        assert {values.dtype for values in carried.values()} == {next(iter(weights.values())).dtype}
        momentum = morphism.carry_state(parent, weights)
        assert {tensor: values.shape for tensor, values in momentum.items()} == dict(child.weights)
        assert digest(morphism.carry(parent, weights)) == digest(carried)
        assert (repr(parent), digest(weights)) == (shown, before)
    assert len(places) >= 2
    assert kind in TEXT_MIX or sum(num >= 2 for num in places.values()) >= 2, places


@every_kind
def test_networks_of_the_other_task_and_layer_norms_are_refused_in_one_line(kind: type[Morphism]) -> None:
    others = {"": standard("gated")}
    if kind in TEXT_MIX:
        others = {"symbol": residual((1, 8, 8), 5, (4, 8)), "RMSNorm": TEXT_SEEDS["gpt-4x128"]((8,))}
    _, _, morphism = next(cases(kind, 1))
    for word, other in others.items():
        with pytest.raises(MorphismError, match=f"^.*{word}.*$"):
            kind.propose(other, random.Random(0))
        with pytest.raises(MorphismError, match=f"^.*{word}.*$"):
            morphism.apply(other)


def test_the_mixes_are_all_there_is() -> None:
    assert [sum(MIX.values()), sum(TEXT_MIX.values())] == pytest.approx([1, 1])
    assert not MIX.keys() & TEXT_MIX.keys()
    assert {*MIX, *TEXT_MIX} == set(members(Morphism))


@pytest.mark.parametrize(
    ("build", "deepen"),
    [(lambda: resnet50((3, 64, 64), 10), DeepenBottleneck), (TEXT_SEEDS["llama-4x128"], DeepenPlain)],
    ids=["images", "text"],
)
def test_a_step_of_a_search_takes_milliseconds(build: Callable[[], Graph], deepen: type[Morphism]) -> None:
    """Proposing and applying, for a child of 250 nodes; measured beside other work, so by processor time."""
    parent, rng, seconds = build(), random.Random(3), []
    while len(parent.nodes) < 250:
        parent = deepen.propose(parent, rng).apply(parent)
    for kind in kinds_for(parent) * 5:
        fresh = Graph(parent.input, parent.nodes, head=parent.head)
        began = time.process_time()
        try:
            kind.propose(fresh, rng).apply(fresh)
        except MorphismError:
            continue
        seconds.append(time.process_time() - began)
    assert statistics.median(seconds) < 0.005
