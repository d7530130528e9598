"""Morphisms of text as edits of a function: the child computes what its parent does, and learns."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from nas.graph import Graph
from nas.layers import GELU, Embedding, LayerNorm, Positions, RMSNorm
from nas.modules import Network
from nas.morphisms import Morphism
from nas.morphisms.morphism import MOMENTUM, SQUARES, STEPS
from nas.morphisms.text import (
    DeepenGated,
    DeepenPlain,
    GateMLP,
    MoreGroups,
    MoreHeads,
    Nonlinearity,
    WidenMLP,
    WidenStream,
)
from nas.weights import Array, Weights
from tests.nas.grown import proposals
from tests.nas.text.grown_text import (
    TEXT_KINDS,
    TEXT_PARENTS,
    grown_text,
    randomised_text,
    standard,
    text_proposal,
)
from tests.nas.text.samples import texts

BITWISE = (DeepenPlain, DeepenGated, GateMLP)
"""Those that leave the products of the parent alone, whose sums therefore keep their order."""
# Of the largest logit. What was measured stands in docs/growing.md.
FP64, FP32 = 1e-13, 1e-5
SCALES = (0.01, 1.0, 100.0)

every_parent = pytest.mark.parametrize("name", TEXT_PARENTS)
every_kind = pytest.mark.parametrize("kind", TEXT_KINDS)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("scale", SCALES)
@every_kind
@every_parent
def test_the_function_is_kept(name: str, kind: type[Morphism], scale: float) -> None:
    parent = TEXT_PARENTS[name]()
    for seed, morphism in enumerate(proposals(parent, kind, 3)):
        double = randomised_text(parent, seed, scale)
        child = morphism.apply(parent)
        before = logits(parent, double, torch.float64)
        after = logits(child, morphism.carry(parent, double), torch.float64)
        assert difference(before, after) <= FP64, morphism
        assert kind not in BITWISE or torch.equal(before, after), morphism
        single = halved(double)
        before = logits(parent, single, torch.float32)
        after = logits(child, morphism.carry(parent, single), torch.float32)
        assert difference(before, after) <= FP32, morphism
        assert kind not in BITWISE or torch.equal(before, after), morphism


@every_kind
@every_parent
def test_what_is_carried_in_fp32_is_rounded_at_most_once(name: str, kind: type[Morphism]) -> None:
    """Only γ is multiplied by a number; what it loses is its own rounding, 6e-8."""
    parent = TEXT_PARENTS[name]()
    single = halved(randomised_text(parent, 4))
    before = logits(parent, single, torch.float64)
    for morphism in proposals(parent, kind, 2):
        after = logits(morphism.apply(parent), morphism.carry(parent, single), torch.float64)
        assert difference(before, after) <= (1e-5 if kind is WidenStream else FP64), morphism


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("form", ["plain", "gated"])
def test_a_lineage_keeps_the_function(form: str, seed: int) -> None:
    """Eight morphisms one on the other; activations from 0.01 to 100; weights drawn once."""
    rng = random.Random(seed)
    root, scale = standard(form), SCALES[seed % 3]
    graph, double = root, randomised_text(root, seed, scale)
    single = halved(double)
    first = logits(graph, double, torch.float64)
    rounded = logits(graph, single, torch.float32)
    for _ in range(8):
        morphism = text_proposal(graph, rng)
        child = morphism.apply(graph)
        double, single = morphism.carry(graph, double), morphism.carry(graph, single)
        graph = child
    assert difference(first, logits(graph, double, torch.float64)) <= 8 * FP64
    assert difference(rounded, logits(graph, single, torch.float32)) <= FP32
    assert {values.dtype for values in single.values()} == {np.dtype(np.float32)}
    assert {values.dtype for values in double.values()} == {np.dtype(np.float64)}


@pytest.mark.parametrize(
    "morphism",
    [
        MoreHeads("block1.attention", 10, 2, 0),
        MoreHeads("block1.attention", 10, 5, 0),
        WidenMLP("block1.mlp.in", 17, 0),
        WidenStream("block1.attention.out", 13, 0),
        DeepenPlain("block1.add1", 6, 3, 2, 0.0, 5, Nonlinearity.SILU, 0),
        DeepenGated("embedding", 1, 1, 2, 100.0, 1, Nonlinearity.SQUARED_RELU, 0),
    ],
)
def test_sizes_that_nothing_proposes_keep_the_function(morphism: Morphism) -> None:
    parent = standard("plain")
    weights = randomised_text(parent, 2)
    before = logits(parent, weights, torch.float64)
    after = logits(morphism.apply(parent), morphism.carry(parent, weights), torch.float64)
    assert difference(before, after) <= FP64


def of_the_space(graph: Graph) -> Graph:
    """With other layers of the same shape where none of the space stands."""
    others = {LayerNorm: RMSNorm(1e-3), Positions: GELU()}
    nodes = [replace(node, layer=others.get(type(node.layer), node.layer)) for node in graph.nodes]
    return replace(graph, nodes=tuple(nodes))


@settings(max_examples=60)
@given(texts().map(of_the_space), st.integers(0, 1000))
def test_any_child_keeps_the_function(graph: Graph, seed: int) -> None:
    """Of networks of any form, where a place is found."""
    found = [morphism for kind in TEXT_KINDS for morphism in proposals(graph, kind, 2)]
    assume(found)
    weights = randomised_text(graph, seed)
    before = logits(graph, weights, torch.float64)
    assume(before.abs().max() > 0)
    for morphism in found:
        after = logits(morphism.apply(graph), morphism.carry(graph, weights), torch.float64)
        assert difference(before, after) <= 10 * FP64, morphism


@every_kind
@every_parent
def test_momentum_follows_the_gradient(name: str, kind: type[Morphism]) -> None:
    """Carried as a momentum is, the parent's gradient is the child's, but for what is new."""
    parent = TEXT_PARENTS[name]()
    weights = randomised_text(parent, 1)
    before = gradients(parent, weights)
    ones = {tensor: np.ones_like(values) for tensor, values in before.items()}
    scale = max(np.abs(values).max() for values in before.values())
    for morphism in proposals(parent, kind, 2):
        expected, known = morphism.carry_state(parent, before), morphism.carry_state(parent, ones)
        found = gradients(morphism.apply(parent), morphism.carry(parent, weights))
        assert found.keys() == expected.keys()
        for tensor, values in found.items():
            assert not expected[tensor][known[tensor] == 0].any()
            wrong = np.abs(values - expected[tensor])[known[tensor] != 0]
            assert wrong.max(initial=0) <= 1e-12 * scale, (morphism, tensor)


@every_parent
def test_squares_and_steps_follow_from_the_same_factor(name: str) -> None:
    """For a factor s on a gradient: Adam's m times s, v times s²; 0 where new. A tensor of which a part is
    taken goes on with its steps, one that is wholly new begins at 0."""
    parent = TEXT_PARENTS[name]()
    seven = dict.fromkeys(parent.weights, np.array(7.0))
    ones = {tensor: np.ones(shape) for tensor, shape in parent.weights.items()}
    scaled = 0
    for kind in TEXT_KINDS:
        for morphism in proposals(parent, kind, 2):
            change = morphism.edit(parent)
            m, v = (change.carried_state(parent, ones, power) for power in (MOMENTUM, SQUARES))
            steps = change.carried_state(parent, seven, STEPS)
            assert m.keys() == v.keys() == steps.keys() == change.child.weights.keys()
            for tensor in m:
                np.testing.assert_allclose(v[tensor], m[tensor] ** 2, rtol=1e-15)
                assert steps[tensor].shape == ()
                assert steps[tensor] == 7 * m[tensor].any()
                scaled += not np.isin(m[tensor], (0, 1)).all()
    assert scaled, "nothing has a factor other than 1"


def test_copies_of_a_group_share_its_gradient() -> None:
    """Their sum is that of the group, but no copy has a fixed part of it: so their state begins anew."""
    parent = standard("plain")
    weights, morphism = randomised_text(parent, 3), MoreGroups("block1.attention", 4)
    before = gradients(parent, weights)
    found = gradients(morphism.apply(parent), morphism.carry(parent, weights))
    for part in ("key", "value"):
        tensor = f"block1.attention.{part}.weight"
        copies = found[tensor].reshape(2, 2, 4, 12)  # groups, copies, features of a head, what they read
        np.testing.assert_allclose(copies.sum(axis=1).reshape(8, 12), before[tensor], atol=1e-12)
        assert np.abs(copies[:, 0] - copies[:, 1]).max() > 1e-3
        assert not morphism.carry_state(parent, before)[tensor].any()


@every_kind
@pytest.mark.parametrize("name", ["plain", "gated", "knotted", "mixed", "grown plain"])
def test_all_that_is_new_learns_within_two_steps(name: str, kind: type[Morphism]) -> None:
    """Every single new number gets a gradient: no dead feature, no dead head."""
    parent = TEXT_PARENTS[name]()
    weights = randomised_text(parent, 1)
    ones = {tensor: np.ones(shape) for tensor, shape in parent.weights.items()}
    for morphism in proposals(parent, kind, 2):
        child = network(morphism.apply(parent), morphism.carry(parent, weights), torch.float64)
        reached = {tensor: values != 0 for tensor, values in morphism.carry_state(parent, ones).items()}
        assert not all(values.all() for values in reached.values()), "nothing is new"
        optimizer = torch.optim.SGD(child.parameters(), 0.1)
        for _ in range(2):
            optimizer.zero_grad()
            loss(child).backward()
            for tensor, values in reached.items():
                values |= gradient(child, tensor) != 0
            optimizer.step()
        dead = {tensor: int((~values).sum()) for tensor, values in reached.items() if not values.all()}
        assert not dead, (morphism, dead)


def test_the_function_is_kept_after_training() -> None:
    """Of a grown network that has learnt: the parent's own training gives weights that nobody drew."""
    graph = grown_text("gated", 7)
    rng = random.Random(0)
    found = network(graph, randomised_text(graph, 5), torch.float64)
    for _ in range(6):
        optimizer = torch.optim.Adam(found.parameters(), 0.01)
        before = loss(found).item()
        for _ in range(3):
            optimizer.zero_grad()
            loss(found).backward()
            optimizer.step()
        assert loss(found).item() < before
        weights = {name: tensor.detach().numpy() for name, tensor in found.tensors().items()}
        morphism = text_proposal(graph, rng)
        child = morphism.apply(graph)
        after = logits(child, morphism.carry(graph, weights), torch.float64)
        assert difference(logits(graph, weights, torch.float64), after) <= FP64
        found = network(child, morphism.carry(graph, weights), torch.float64)
        graph = child


def halved(weights: Weights) -> dict[str, Array]:
    """In fp32."""
    return {name: values.astype(np.float32) for name, values in weights.items()}


def symbols(graph: Graph, num: int = 64) -> Tensor:
    """Enough that every symbol occurs, without which a row of an embedding would have no gradient."""
    least = min(node.layer.symbols for node in graph.nodes if isinstance(node.layer, Embedding))
    return torch.randint(least, (num, *graph.input), generator=torch.Generator().manual_seed(0))


def network(graph: Graph, weights: Weights, dtype: torch.dtype) -> Network:
    """Dropout stays off: its masks are drawn for a shape, and a wider tensor gets others."""
    found = Network(graph).to(dtype)
    found.load(weights)
    for module in found.modules():
        if isinstance(module, nn.Dropout):
            module.eval()
    return found


@torch.no_grad()
def logits(graph: Graph, weights: Weights, dtype: torch.dtype) -> Tensor:
    found: Tensor = network(graph, weights, dtype)(symbols(graph))
    return found


def loss(found: Network) -> Tensor:
    read = symbols(found.graph)
    following = (3 * read + 1) % found.graph.classes
    return F.cross_entropy(found(read).flatten(0, 1), following.flatten())


def gradients(graph: Graph, weights: Weights) -> dict[str, Array]:
    found = network(graph, weights, torch.float64)
    loss(found).backward()
    return {tensor: gradient(found, tensor) for tensor in graph.weights}


def gradient(found: Network, tensor: str) -> Array:
    values = found.tensors()[tensor].grad
    assert values is not None
    return values.numpy()


def difference(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max() / one.abs().max())
