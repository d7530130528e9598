"""Morphisms as edits of a function: the child computes what the parent does, and learns from there."""

from __future__ import annotations

import random
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
from nas.layers import ShapeError
from nas.modules import Network
from nas.morphisms import EnlargeKernel, Morphism, MorphismError
from nas.morphisms.morphism import MOMENTUM, SQUARES, STEPS
from nas.seeds import resnet50
from nas.weights import Array, Weights
from tests.nas.graphs import graphs
from tests.nas.grown import COPYING, EXACT, KINDS, PARENTS, proposal, proposals, randomised

IMAGES = 6
RESNET = resnet50((3, 32, 32), 10)
# Of the largest logit. In fp32 the noise of an unchanged network is 1e-6.
ALLOWED = {"fp64": 1e-12, "fp64 training": 1e-10, "fp32": 1e-5, "fp32 training": 1e-4}

every_parent = pytest.mark.parametrize("name", PARENTS)
every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
@every_parent
def test_the_function_is_kept(name: str, kind: type[Morphism]) -> None:
    """Carried in fp32: what is rounded there must cancel, not only be small.

    Where the main path's kernels are left alone, every bit is kept.
    """
    parent, weights = PARENTS[name](), trained(name)
    for morphism in proposals(parent, kind, 1):
        found = readings(morphism.apply(parent), morphism.carry(parent, weights))
        for reading, before in reference(name).items():
            assert difference(before, found[reading]) <= ALLOWED[reading], (morphism, reading)
            assert kind not in EXACT or torch.equal(before, found[reading]), (morphism, reading)


@every_kind
@every_parent
def test_momentum_follows_the_gradient(name: str, kind: type[Morphism]) -> None:
    """Carried as a momentum is, the parent's gradient is the child's, but for what is new."""
    parent = PARENTS[name]()
    weights = {tensor: values.astype(np.float64) for tensor, values in trained(name).items()}
    before = slopes(name)
    for morphism in proposals(parent, kind, 1):
        expected = morphism.carry_state(parent, before)
        known = morphism.carry_state(parent, {tensor: np.ones_like(before[tensor]) for tensor in before})
        found = gradients(morphism.apply(parent), morphism.carry(parent, weights))
        assert found.keys() == expected.keys()
        scale = max(np.abs(values).max() for values in before.values())
        for tensor, values in found.items():
            assert not expected[tensor][known[tensor] == 0].any()
            wrong = np.abs(values - expected[tensor])[known[tensor] != 0]
            assert wrong.max(initial=0) <= 1e-9 * scale, (morphism, tensor)


@every_parent
def test_squares_and_steps_follow_from_the_same_factor(name: str) -> None:
    """Of a share s of the gradient Adam's v has s²; a tensor that is wholly new begins at step 0."""
    parent = PARENTS[name]()
    ones = {tensor: np.ones(shape) for tensor, shape in parent.weights.items()}
    seven = dict.fromkeys(parent.weights, np.array(7.0))
    scaled = new = 0
    for kind in KINDS:
        for morphism in proposals(parent, kind, 1):
            m, v = (morphism.carry_state(parent, ones, power) for power in (MOMENTUM, SQUARES))
            steps = morphism.carry_state(parent, seven, STEPS)
            assert m.keys() == v.keys() == steps.keys()
            for tensor in m:
                np.testing.assert_allclose(v[tensor], m[tensor] ** 2, rtol=1e-15)
                assert steps[tensor].shape == ()
                assert steps[tensor] == 7 * m[tensor].any()
                scaled += not np.isin(m[tensor], (0, 1)).all()
                new += not steps[tensor]
    assert scaled
    assert new


@every_kind
@pytest.mark.parametrize("name", ["residual", "aggregated", "plain", "biased", "joined"])
def test_all_that_is_new_learns_within_two_steps(name: str, kind: type[Morphism]) -> None:
    """Every single new number gets a gradient: no dead filter, no tap that meets padding only."""
    parent, weights = PARENTS[name](), trained(name)
    ones = {tensor: np.ones(shape) for tensor, shape in parent.weights.items()}
    for morphism in proposals(parent, kind, 1):
        child = network(morphism.apply(parent), morphism.carry(parent, weights), torch.float64, train=True)
        known = morphism.carry_state(parent, ones)
        reached = {tensor: values != 0 for tensor, values in known.items()}
        assert all(values.all() for values in reached.values()) == (kind in COPYING), "nothing is new"
        optimizer = torch.optim.SGD(child.parameters(), 0.1)
        for _ in range(2):
            optimizer.zero_grad()
            loss(child, num=64).backward()
            for tensor, values in reached.items():
                values |= gradient(child, tensor) != 0
            optimizer.step()
        dead = {tensor: int((~values).sum()) for tensor, values in reached.items() if not values.all()}
        assert not dead, (morphism, dead)


@every_kind
@pytest.mark.parametrize("name", ["residual", "aggregated"])
def test_in_bf16_the_child_is_as_near_as_the_parent(name: str, kind: type[Morphism]) -> None:
    """Within the noise of an unchanged network, which is what its own rounding does to it."""
    parent, weights = PARENTS[name](), trained(name)
    exact = reference(name)["fp64"]

    def error(graph: Graph, weights: Weights) -> float:
        with torch.autocast("cpu", torch.bfloat16):
            return difference(exact, logits(graph, weights, torch.float32).double())

    noise = error(parent, weights)
    for morphism in proposals(parent, kind, 1):
        assert error(morphism.apply(parent), morphism.carry(parent, weights)) <= 3 * noise, morphism


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", ["residual", "aggregated", "biased", "joined"])
def test_a_lineage_keeps_the_function(name: str, seed: int) -> None:
    """Ten morphisms one on the other, carried in fp32 and in fp64."""
    graph, rng = PARENTS[name](), random.Random(seed)
    single = randomised(graph, seed)
    double = {tensor: values.astype(np.float64) for tensor, values in single.items()}
    before = [logits(graph, weights, torch.float64) for weights in (single, double)]
    for _ in range(10):
        morphism = proposal(graph, rng)
        child = morphism.apply(graph)
        single, double = morphism.carry(graph, single), morphism.carry(graph, double)
        graph = child
        after = [logits(graph, weights, torch.float64) for weights in (single, double)]
        assert max(map(difference, before, after)) <= 1e-12, morphism
        before = after
    assert {values.dtype for values in single.values()} == {np.dtype(np.float32)}
    assert {values.dtype for values in double.values()} == {np.dtype(np.float64)}


@settings(max_examples=40)
@given(graphs(), st.sampled_from(KINDS), st.data())
def test_any_child_keeps_the_function(graph: Graph, kind: type[Morphism], data: st.DataObject) -> None:
    """Also at places that nothing would propose: what applies must be right."""
    found = proposals(graph, kind, 1)
    assume(found)
    node = data.draw(st.sampled_from(list(graph.node)))
    weights = randomised(graph, 6)
    for morphism in (*found, replace(found[0], node=node)):  # type: ignore[call-arg]
        try:
            child = morphism.apply(graph)
        except (MorphismError, ShapeError):
            continue
        before = logits(graph, weights, torch.float64)
        after = logits(child, morphism.carry(graph, weights), torch.float64)
        assert float((before - after).abs().max()) <= 1e-12 * max(1.0, float(before.abs().max())), morphism


@pytest.mark.parametrize("node", ["0.Conv2d", "2.DepthwiseConv2d", "10.Conv2d"])
def test_a_larger_kernel_keeps_the_function_whatever_the_padding(node: str) -> None:
    parent, weights = PARENTS["biased"](), trained("biased")
    morphism = EnlargeKernel(node, 5)
    after = logits(morphism.apply(parent), morphism.carry(parent, weights), torch.float64)
    assert difference(reference("biased")["fp64"], after) <= ALLOWED["fp64"]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.__name__ != "Ungroup"])
def test_the_function_of_a_resnet50_is_kept(kind: type[Morphism]) -> None:
    weights, before = _resnet50()
    (morphism,) = proposals(RESNET, kind, 1)
    after = logits(morphism.apply(RESNET), morphism.carry(RESNET, weights), torch.float64, num=1)
    assert difference(before, after) <= 1e-12


@pytest.mark.slow
@every_kind
def test_the_function_of_a_grown_resnet50_is_kept_in_training(kind: type[Morphism]) -> None:
    """With grouped blocks, gates, shortcuts and branches, at 64²."""
    graph, rng = resnet50((3, 64, 64), 100), random.Random(5)
    for _ in range(12):
        graph = rng.choice(KINDS[4:-1]).propose(graph, rng).apply(graph)
    weights = randomised(graph, 7)
    before = [logits(graph, weights, torch.float64, train) for train in (False, True)]
    for morphism in proposals(graph, kind, 2):
        child, carried = morphism.apply(graph), morphism.carry(graph, weights)
        after = [logits(child, carried, torch.float64, train) for train in (False, True)]
        assert difference(before[0], after[0]) <= 1e-12
        assert difference(before[1], after[1]) <= 1e-10


@cache
def trained(name: str) -> Weights:
    return randomised(PARENTS[name](), 1)


@cache
def reference(name: str) -> dict[str, Tensor]:
    return readings(PARENTS[name](), trained(name))


@cache
def slopes(name: str) -> dict[str, Array]:
    return gradients(PARENTS[name](), trained(name))


@cache
def _resnet50() -> tuple[Weights, Tensor]:
    weights = randomised(RESNET, 8)
    return weights, logits(RESNET, weights, torch.float64, num=1)


def images(graph: Graph, num: int = IMAGES) -> Tensor:
    return torch.randn(num, *graph.input, generator=torch.Generator().manual_seed(0))


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


@torch.no_grad()
def readings(graph: Graph, weights: Weights) -> dict[str, Tensor]:
    """The logits by format, in validation and in training."""
    found: dict[str, Tensor] = {}
    read = network(graph, weights, torch.float32, train=False)
    for name, dtype in (("fp32", torch.float32), ("fp64", torch.float64)):
        read.to(dtype).load(weights)  # a training step moved the running statistics
        for mode in ("", " training"):
            training(read, bool(mode))
            found[name + mode] = read(images(graph).to(dtype))
    return found


def logits(
    graph: Graph, weights: Weights, dtype: torch.dtype, train: bool = False, num: int = IMAGES
) -> Tensor:
    with torch.no_grad():
        found: Tensor = network(graph, weights, dtype, train)(images(graph, num).to(dtype))
    return found


def loss(found: Network, num: int = IMAGES) -> Tensor:
    labels = torch.arange(num) % found.graph.classes
    return cross_entropy(found(images(found.graph, num).double()), labels)


def gradients(graph: Graph, weights: Weights) -> dict[str, Array]:
    """Of the loss of one training step, in fp64."""
    found = network(graph, weights, torch.float64, train=True)
    loss(found).backward()
    return {tensor: gradient(found, tensor) for tensor in graph.weights}


def gradient(found: Network, tensor: str) -> Array:
    values = found.tensors()[tensor].grad
    assert values is not None
    return values.numpy()


def difference(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max() / one.abs().max())
