"""AdamW by its formula, clipped gradients by hand, and state that is taken up again."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from aiperf.device import bind
from aiperf.parallel.parallel import make_step
from aiperf.training.optimizers import EPSILON, SECOND_BETA, make_optimizer, set_state, state_of
from aiperf.trial import HyperParameters
from nas.modules import Network
from nas.morphisms.text import WidenMLP
from tests.aiperf.training.text_trials import GRAPH, START

HYPER = HyperParameters(learning_rate=0.02, batch_size=4, momentum=0.9, weight_decay=0.1)
SCALER = torch.amp.GradScaler("cpu", enabled=False)
KINDS = ("sgd", "adamw", "muon")
STATE = {
    "sgd": {"momentum"},
    "adamw": {"exp_avg", "exp_avg_sq", "step"},
    "muon": {"momentum", "exp_avg", "exp_avg_sq", "step"},
}


def network_of(graph: Any = GRAPH, weights: Any = START.weights) -> Network:
    network = Network(graph)
    network.load(weights)
    return network


def set_gradients(network: Network, step: int, scale: float = 1.0) -> None:
    generator = torch.Generator().manual_seed(step)
    for tensor in network.tensors().values():
        tensor.grad = scale * torch.randn(tensor.shape, generator=generator)


def copies(network: Network) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in network.tensors().items()}


def optimizer_of(name: str, network: Network, hyper: HyperParameters = HYPER) -> torch.optim.Optimizer:
    return make_optimizer(name, network, hyper, bind("cpu", 0), "fp32")


def test_adamw_by_its_formula() -> None:
    """Loshchilov and Hutter, ICLR 2019, algorithm 2, in fp64; norms, being of one dimension, do not decay."""
    network = network_of()
    optimizer = optimizer_of("adamw", network)
    x = {name: tensor.double() for name, tensor in copies(network).items()}
    m, v = ({name: torch.zeros_like(tensor) for name, tensor in x.items()} for _ in range(2))
    for step in range(1, 6):
        set_gradients(network, step)
        for name, tensor in network.tensors().items():
            assert tensor.grad is not None
            g, decay = tensor.grad.double(), HYPER.weight_decay if tensor.ndim > 1 else 0.0
            m[name] = 0.9 * m[name] + 0.1 * g
            v[name] = SECOND_BETA * v[name] + (1 - SECOND_BETA) * g**2
            towards = m[name] / (1 - 0.9**step) / ((v[name] / (1 - SECOND_BETA**step)).sqrt() + EPSILON)
            x[name] = x[name] - HYPER.learning_rate * (towards + decay * x[name])
        make_step(optimizer, SCALER, 0.0)
    for name, tensor in copies(network).items():
        assert torch.allclose(tensor.double(), x[name], rtol=1e-4, atol=1e-6), name


@pytest.mark.parametrize("name", KINDS)
def test_a_state_that_was_kept_is_gone_on_with(name: str) -> None:
    """To the last bit: three steps, then three by another network with the state as arrays."""
    whole, first = network_of(), network_of()
    optimizer, before = optimizer_of(name, whole), optimizer_of(name, first)
    assert state_of(whole, optimizer) == {}
    for step in range(6):
        set_gradients(whole, step)
        make_step(optimizer, SCALER, 1.0)
    for step in range(3):
        set_gradients(first, step)
        make_step(before, SCALER, 1.0)
    weights = {tensor: values.numpy() for tensor, values in copies(first).items()}
    state = {
        kind: {tensor: values.numpy() for tensor, values in tensors.items()}
        for kind, tensors in state_of(first, before).items()
    }
    assert set(state) == STATE[name]
    second = network_of(weights=weights)
    after = optimizer_of(name, second)
    set_state(second, after, state)
    for step in range(3, 6):
        set_gradients(second, step)
        make_step(after, SCALER, 1.0)
    for tensor, values in copies(whole).items():
        assert torch.equal(values, second.tensors()[tensor]), tensor


@pytest.mark.parametrize("clip", [0.0, 0.5, 1e6])
@pytest.mark.parametrize("scale", [None, 2.0**13])
def test_gradients_are_shortened_together(clip: float, scale: float | None) -> None:
    """All by the same factor, to a norm of `clip`; where a scaler multiplied them, without its scale."""
    network, by_hand = network_of(), network_of()
    plain = HyperParameters(learning_rate=0.02, batch_size=4, momentum=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale or 1.0, enabled=scale is not None)
    scaler.scale(torch.ones(()))  # it makes its scale when it is first used
    set_gradients(network, 1, scale or 1.0)
    set_gradients(by_hand, 1)
    gradients = {name: tensor.grad for name, tensor in by_hand.tensors().items() if tensor.grad is not None}
    norm = sqrt(sum(float(gradient.double().square().sum()) for gradient in gradients.values()))
    factor = min(1.0, clip / norm) if clip else 1.0
    before = copies(network)
    make_step(optimizer_of("sgd", network, plain), scaler, clip)
    for name, tensor in copies(network).items():
        expected = before[name] - 0.02 * factor * gradients[name]
        assert torch.allclose(tensor, expected, rtol=1e-5, atol=1e-7), name


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_a_step_that_overflowed_is_left_out(name: str, clip: float) -> None:
    network = network_of()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(torch.ones(()))
    optimizer, before = optimizer_of(name, network), copies(network)
    set_gradients(network, 1)
    gradient = network.tensors()["symbols.weight"].grad
    assert gradient is not None
    gradient[3, 4] = float("inf")
    make_step(optimizer, scaler, clip)
    scaler.update()
    assert all(torch.equal(tensor, before[each]) for each, tensor in copies(network).items())
    assert scaler.get_scale() == 512.0
    if name != "sgd":
        assert not any(steps.any() for steps in state_of(network, optimizer).get("step", {}).values())


@pytest.mark.parametrize("momentum", [0.8, 0.9, 0.98])
@pytest.mark.parametrize("steps", [1, 2, 5, 1000])
def test_what_is_new_makes_no_longer_step_than_the_rate(momentum: float, steps: int) -> None:
    """A tensor that is partly the parent's goes on with the parent's number of steps; what is new in it has
    m = v = 0. It then moves by (1 - beta 1) / sqrt(1 - beta 2) of the rate where the steps are many."""
    hyper = HyperParameters(learning_rate=0.01, batch_size=4, momentum=momentum)
    ones = {name: np.ones(shape, np.float32) for name, shape in GRAPH.weights.items()}
    state = {"exp_avg": ones, "exp_avg_sq": ones}
    morphism = WidenMLP("block1.mlp.in", 96, 0)
    parent = {**state, "step": dict.fromkeys(ones, np.array(steps, np.float32))}
    child = type(START)(GRAPH, START.weights, parent).grown(morphism)
    network = network_of(child.graph, child.weights)
    optimizer = optimizer_of("adamw", network, hyper)
    set_state(network, optimizer, child.state)
    before = copies(network)["block1.mlp.out.weight"]
    set_gradients(network, 1, 100.0)
    make_step(optimizer, SCALER, 0.0)
    moved = (copies(network)["block1.mlp.out.weight"] - before).abs() / hyper.learning_rate
    new = moved[:, 64:]
    assert new.shape == (32, 32)
    t, b1, b2 = steps + 1, momentum, SECOND_BETA
    expected = (1 - b1) / (1 - b1**t) * sqrt((1 - b2**t) / (1 - b2))
    assert torch.allclose(new, torch.full_like(new, expected), rtol=1e-3)
    assert float(new.max()) <= 1.0
