"""Every morphism as an edit of a function: the child computes what its parent does, and learns from there."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from nas.graph import Graph
from nas.head import NextSymbol
from nas.layers import GELU, Embedding, LayerNorm, Positions, RMSNorm, ShapeError
from nas.modules import Network
from nas.morphisms import (
    MIX,
    TEXT_MIX,
    BranchSplit,
    DeepenBasic,
    DeepenBottleneck,
    EnlargeKernel,
    Morphism,
    MorphismError,
    Skip,
    SqueezeExcite,
    Widen,
    WidenByCopies,
    WidenTrunkByCopies,
)
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
from nas.seeds import resnet50
from nas.weights import Array, Weights
from tests.nas.graphs import graphs, texts
from tests.nas.grown import (
    PARENTS,
    TEXT_PARENTS,
    cases,
    kinds_for,
    parents_of,
    proposal,
    proposals,
    randomised,
)

EXACT = (DeepenBasic, DeepenBottleneck, Skip, SqueezeExcite, DeepenPlain, DeepenGated, GateMLP)
"""Those that leave the kernels of the main path alone, whose sums therefore keep their order."""
COPYING = (WidenByCopies, WidenTrunkByCopies, BranchSplit)
"""Those without new weights, only shares of the parent's."""
# Of the largest logit. In fp32 the noise of an unchanged network is 1e-6.
ALLOWED = {"fp64": 1e-12, "fp64 training": 1e-10, "fp32": 1e-5, "fp32 training": 1e-4, "carried": 1e-13}
# What was measured stands in docs/growing.md.
ALLOWED_OF_TEXT = dict.fromkeys(ALLOWED, 1e-13) | dict.fromkeys(("fp32", "fp32 training"), 1e-5)
SCALES = (1.0, 0.01, 100.0)
LINEAGES = [PARENTS[name] for name in ("aggregated", "joined")]
LINEAGES += [TEXT_PARENTS[name] for name in ("plain", "gated")]

every_kind = pytest.mark.parametrize("kind", [*MIX, *TEXT_MIX])


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.contract
@every_kind
def test_the_function_is_kept(kind: type[Morphism]) -> None:
    for place, (name, _, morphism) in enumerate(cases(kind, 1)):
        is_kept(name, morphism, 1.0 if kind in MIX else SCALES[place % 3])


def is_kept(name: str, morphism: Morphism, scale: float = 1.0) -> None:
    """Carried in fp32: what is rounded there must cancel, not only be small. And in fp64.

    Where the main path's kernels are left alone, every bit is kept.
    """
    kind = type(morphism)
    parent, weights = parents_of(kind)[name](), weights_of(kind, name, scale)
    found = readings(
        morphism.apply(parent), morphism.carry(parent, single(weights)), morphism.carry(parent, weights)
    )
    for reading, before in reference(kind in TEXT_MIX, name, scale).items():
        where = (name, morphism, reading, scale)
        assert difference(before, found[reading]) <= allowed(kind, reading), where
        assert kind not in EXACT or torch.equal(before, found[reading]), where


def allowed(kind: type[Morphism], reading: str) -> float:
    if kind is WidenStream and reading.startswith("fp64"):
        return 1e-5  # γ is multiplied by a number; what it loses is its own rounding, 6e-8
    return (ALLOWED if kind in MIX else ALLOWED_OF_TEXT)[reading]


@every_kind
def test_state_follows_the_gradient_and_what_is_new_learns_in_two_steps(kind: type[Morphism]) -> None:
    """Carried as a momentum is, the parent's gradient is the child's, but for what is new. Every single new
    number gets a gradient: no dead filter, feature or head, no tap that meets padding only."""
    for name, parent, morphism in cases(kind, 1):
        where, weights = (name, morphism), weights_of(kind, name)
        before = slopes(kind in TEXT_MIX, name)
        expected = morphism.carry_state(parent, before)
        known = morphism.carry_state(parent, {tensor: np.ones_like(before[tensor]) for tensor in before})
        child = network(morphism.apply(parent), morphism.carry(parent, weights), torch.float64, train=True)
        found = gradients(child)
        assert found.keys() == expected.keys()
        most = max(np.abs(values).max() for values in before.values()) * (1e-9 if kind in MIX else 1e-12)
        for tensor, values in found.items():
            assert not expected[tensor][known[tensor] == 0].any()
            wrong = np.abs(values - expected[tensor])[known[tensor] != 0]
            assert wrong.max(initial=0) <= most, (where, tensor)
        assert all(values.all() for values in known.values()) == (kind in COPYING), (where, "nothing is new")
        torch.optim.SGD(child.parameters(), 0.1).step()
        again = gradients(child)
        dead = {
            tensor: int((~((known[tensor] != 0) | (values != 0) | (again[tensor] != 0))).sum())
            for tensor, values in found.items()
        }
        assert not any(dead.values()), (where, dead)


@every_kind
def test_squares_and_steps_follow_from_the_same_factor(kind: type[Morphism]) -> None:
    """If a share s of the gradient is carried, so is s² of Adam's v. A tensor of which a part is taken goes
    on with its steps, one that is wholly new begins at 0."""
    scaled = 0
    for _, parent, morphism in cases(kind, 2):
        ones = {tensor: np.ones(shape) for tensor, shape in parent.weights.items()}
        seven = dict.fromkeys(parent.weights, np.array(7.0))
        m, v = (morphism.carry_state(parent, ones, power) for power in (MOMENTUM, SQUARES))
        steps = morphism.carry_state(parent, seven, STEPS)
        assert m.keys() == v.keys() == steps.keys() == morphism.apply(parent).weights.keys()
        for tensor in m:
            np.testing.assert_allclose(v[tensor], m[tensor] ** 2, rtol=1e-15)
            assert steps[tensor].shape == ()
            assert steps[tensor] == 7 * m[tensor].any()
            scaled += not np.isin(m[tensor], (0, 1)).all()
    assert bool(scaled) == (kind in (*COPYING, WidenStream))


@pytest.mark.parametrize("build", LINEAGES)
def test_a_lineage_that_learns_keeps_the_function(build: Callable[[], Graph]) -> None:
    """Six morphisms one on the other, of weights that no one drew: between them is a step of training."""
    graph, rng = build(), random.Random(0)
    weights: Weights = double(randomised(graph, 0))
    for _ in range(6):
        morphism = proposal(graph, rng)
        child, carried = morphism.apply(graph), morphism.carry(graph, weights)
        for kind, most, before in ((torch.float64, 1e-12, weights), (torch.float32, 1e-5, single(weights))):
            after = logits(child, morphism.carry(graph, before), kind)
            assert difference(logits(graph, before, kind), after) <= most, morphism
        found = network(child, carried, torch.float64, train=True)
        gradients(found)
        torch.optim.Adam(found.parameters(), 0.003).step()
        graph, weights = child, {name: t.detach().numpy() for name, t in found.tensors().items()}


def of_the_space(graph: Graph) -> Graph:
    """The graph with every layer that is not in the space replaced by one of the same shape."""
    others = {LayerNorm: RMSNorm(1e-3), Positions: GELU()}
    nodes = [replace(node, layer=others.get(type(node.layer), node.layer)) for node in graph.nodes]
    return replace(graph, nodes=tuple(nodes))


@settings(max_examples=60)
@given(graphs() | texts().map(of_the_space), st.data())
def test_any_child_keeps_the_function(graph: Graph, data: st.DataObject) -> None:
    """Networks of any form are edited, also at places that nothing would propose: an edit that applies is
    right."""
    kinds = data.draw(st.lists(st.sampled_from(kinds_for(graph)), min_size=4, max_size=4, unique=True))
    found = [morphism for kind in kinds for morphism in proposals(graph, kind, 1)]
    assume(found)
    node = data.draw(st.sampled_from(list(graph.node)))
    weights = double(randomised(graph, 6))
    before = logits(graph, weights, torch.float64)
    for morphism in (*found, *(replace(each, node=node) for each in found)):  # type: ignore[call-arg]
        try:
            child = morphism.apply(graph)
        except (MorphismError, ShapeError):
            continue
        after = logits(child, morphism.carry(graph, weights), torch.float64)
        assert float((before - after).abs().max()) <= 1e-12 * max(1.0, float(before.abs().max())), morphism


@pytest.mark.parametrize(
    ("name", "morphism"),
    [
        # Biased, depthwise and rectangular neighbours, and paddings of 0 and 1.
        *(("biased", EnlargeKernel(node, 5)) for node in ("Conv2d.0", "DepthwiseConv2d.2", "Conv2d.10")),
        # The groups before and behind a shuffle need four runs of two channels, each of which grows.
        *(("modern", kind("Conv2d.12", 16, 5)) for kind in (Widen, WidenByCopies)),
        ("plain", MoreHeads("block1.attention", 10, 2, 0)),
        ("plain", MoreHeads("block1.attention", 10, 5, 0)),
        ("plain", WidenMLP("block1.mlp.in", 17, 0)),
        ("plain", WidenStream("block1.attention.out", 13, 0)),
        ("plain", DeepenPlain("block1.add1", 6, 3, 2, 0.0, 5, Nonlinearity.SILU, 0)),
        ("plain", DeepenGated("embedding", 1, 1, 2, 100.0, 1, Nonlinearity.SQUARED_RELU, 0)),
    ],
)
def test_sizes_and_places_that_nothing_proposes_keep_the_function(name: str, morphism: Morphism) -> None:
    is_kept(name, morphism)


def test_copies_of_a_group_share_its_gradient() -> None:
    """Their sum is that of the group, but no copy has a fixed part of it: so their state begins anew."""
    parent, morphism = TEXT_PARENTS["plain"](), MoreGroups("block1.attention", 4)
    before = slopes(True, "plain")
    carried = morphism.carry(parent, weights_of(MoreGroups, "plain"))
    found = gradients(network(morphism.apply(parent), carried, torch.float64, train=True))
    for part in ("key", "value"):
        tensor = f"block1.attention.{part}.weight"
        copies = found[tensor].reshape(2, 2, 4, 12)  # groups, copies, features of a head, what they read
        np.testing.assert_allclose(copies.sum(axis=1).reshape(8, 12), before[tensor], atol=1e-12)
        assert np.abs(copies[:, 0] - copies[:, 1]).max() > 1e-3
        assert not morphism.carry_state(parent, before)[tensor].any()


@pytest.fixture(scope="module")
def large() -> tuple[Graph, Weights, list[Array]]:
    """A ResNet-50 at 64² with grouped blocks, gates, shortcuts and branches; its weights and answers."""
    graph, rng = resnet50((3, 64, 64), 100), random.Random(8)  # every kind applies
    for _ in range(12):
        graph = rng.choice(list(MIX)[4:-1]).propose(graph, rng).apply(graph)
    weights = randomised(graph, 7)
    return graph, weights, [logits(graph, weights, torch.float64, train) for train in (False, True)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", MIX)
def test_the_function_of_a_grown_resnet50_is_kept_in_training(
    kind: type[Morphism], large: tuple[Graph, Weights, list[Array]]
) -> None:
    graph, weights, before = large
    (morphism,) = proposals(graph, kind, 1)
    child, carried = morphism.apply(graph), morphism.carry(graph, weights)
    after = [logits(child, carried, torch.float64, train) for train in (False, True)]
    assert difference(before[0], after[0]) <= 1e-12
    assert difference(before[1], after[1]) <= 1e-10


def single(weights: Weights) -> dict[str, Array]:
    return {name: values.astype(np.float32) for name, values in weights.items()}


def double(weights: Weights) -> dict[str, Array]:
    return {name: values.astype(np.float64) for name, values in weights.items()}


def weights_of(kind: type[Morphism], name: str, scale: float = 1.0) -> Weights:
    return drawn(kind in TEXT_MIX, name, scale)


@cache
def drawn(is_text: bool, name: str, scale: float) -> Weights:
    return double(randomised((TEXT_PARENTS if is_text else PARENTS)[name](), 1, scale))


@cache
def reference(is_text: bool, name: str, scale: float = 1.0) -> Mapping[str, Tensor]:
    weights = drawn(is_text, name, scale)
    return readings((TEXT_PARENTS if is_text else PARENTS)[name](), single(weights), weights)


@cache
def slopes(is_text: bool, name: str) -> dict[str, Array]:
    graph = (TEXT_PARENTS if is_text else PARENTS)[name]()
    return gradients(network(graph, drawn(is_text, name, 1.0), torch.float64, train=True))


def examples(graph: Graph, num: int) -> Tensor:
    """Enough that every symbol occurs, without which a row of an embedding would have no gradient."""
    generator = torch.Generator().manual_seed(0)
    if isinstance(graph.head, NextSymbol):
        least = min(node.layer.symbols for node in graph.nodes if isinstance(node.layer, Embedding))
        return torch.randint(least, (num, *graph.input), generator=generator)
    return torch.randn(num, *graph.input, generator=generator)


def network(graph: Graph, weights: Weights, dtype: torch.dtype, train: bool) -> Network:
    found = Network(graph).to(dtype)
    found.load(weights)
    training(found, train)
    return found


def training(found: Network, on: bool) -> None:
    """Dropout stays off: its masks are drawn for a shape, and a wider tensor gets others."""
    found.train(on)
    for module in found.modules():
        if isinstance(module, nn.Dropout):
            module.eval()


def answers(found: Network, read: Tensor) -> Tensor:
    made: Tensor = found(read.to(next(found.parameters()).dtype) if read.is_floating_point() else read)
    return made


@torch.no_grad()
def readings(graph: Graph, weights: Weights, exact: Weights) -> dict[str, Tensor]:
    """The logits by format, in validation and in training; "carried": of weights that were fp64 all along."""
    found: dict[str, Tensor] = {}
    read = network(graph, weights, torch.float32, train=False)
    for name, dtype in (("fp32", torch.float32), ("fp64", torch.float64)):
        read.to(dtype).load(weights)  # a training step moved the running statistics
        for mode in ("", " training"):
            training(read, bool(mode))
            found[name + mode] = answers(read, examples(graph, 6))
    read.load(exact)
    training(read, False)
    return found | {"carried": answers(read, examples(graph, 6))}


@torch.no_grad()
def logits(graph: Graph, weights: Weights, dtype: torch.dtype, train: bool = False) -> Tensor:
    return answers(network(graph, weights, dtype, train), examples(graph, 6))


def gradients(found: Network) -> dict[str, Array]:
    """Gradients of the loss of one training step, by tensor."""
    graph, tensors = found.graph, found.tensors()
    is_text = isinstance(graph.head, NextSymbol)
    read = examples(graph, 64 if is_text else 32)
    right = 3 * read + 1 if is_text else torch.arange(len(read))
    found.zero_grad()
    cross_entropy(answers(found, read).flatten(0, -2), right.flatten() % graph.classes).backward()
    return {name: tensors[name].grad.numpy() for name in graph.weights}  # type: ignore[union-attr]


def difference(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max() / one.abs().max())
