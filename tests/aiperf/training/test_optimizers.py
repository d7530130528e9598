"""AdamW by its formula, orthogonal updates of Muon, clipped gradients by hand, and state that is kept."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from aiperf.device import bind
from aiperf.parallel.parallel import make_step
from aiperf.training.kept_network import Kept
from aiperf.training.optimizers import (
    EPSILON,
    SECOND_BETA,
    Muon,
    make_optimizer,
    orthogonal,
    set_state,
    state_of,
)
from aiperf.wire.trial import HyperParameters
from nas.matrices import hidden_matrices
from nas.modules import Network
from nas.morphisms.text import Upcycle, WidenMLP, WidenStream
from nas.seeds import residual
from nas.weights import initial
from tests.aiperf.training.text_trials import GRAPH, START

HYPER = HyperParameters(learning_rate=0.02, batch_size=4, momentum=0.9, weight_decay=0.1)
SCALER = torch.amp.GradScaler("cpu", enabled=False)
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


def optimizer_of(
    name: str, network: Network, hyper: HyperParameters = HYPER, format: str = "fp32"
) -> torch.optim.Optimizer:
    return make_optimizer(name, network, hyper, bind("cpu", 0), format)


def stepped(optimizer: torch.optim.Optimizer, network: Network, steps: range, clip: float = 0.0) -> None:
    for step in steps:
        set_gradients(network, step)
        make_step(optimizer, SCALER, clip)


def arrays(network: Network, optimizer: torch.optim.Optimizer) -> Kept:
    """What would be kept of them."""
    state = {
        kind: {name: tensor.numpy() for name, tensor in tensors.items()}
        for kind, tensors in state_of(network, optimizer).items()
    }
    return Kept(network.graph, {name: each.numpy() for name, each in copies(network).items()}, state)


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


@pytest.mark.parametrize("name", STATE)
def test_a_state_that_was_kept_is_gone_on_with(name: str) -> None:
    """To the last bit: three steps, then three by another network with the state as arrays."""
    whole, first = network_of(), network_of()
    optimizer, before = optimizer_of(name, whole), optimizer_of(name, first)
    assert state_of(whole, optimizer) == {}
    stepped(optimizer, whole, range(6), clip=1.0)
    stepped(before, first, range(3), clip=1.0)
    kept = arrays(first, before)
    assert set(kept.state) == STATE[name]
    second = network_of(weights=kept.weights)
    after = optimizer_of(name, second)
    set_state(second, after, kept.state)
    stepped(after, second, range(3, 6), clip=1.0)
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


@pytest.mark.parametrize("name", STATE)
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


MATRICES: dict[str, Any] = {
    "lr": 0.02,
    "betas": (0.9, 0.95),
    "eps": 1e-8,
    "fused": False,
    "weight_decay": 0.1,
    "muon": True,
}


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("shape", [(32, 32), (64, 24), (24, 64), (3, 40, 16)])
def test_updates_are_nearly_orthogonal(shape: tuple[int, ...]) -> None:
    """The singular vectors stay, and the singular values come near 1: against an exact decomposition."""
    matrices = drawn(*shape)
    found = orthogonal(matrices, torch.float32).double()
    u, _, v = torch.linalg.svd(matrices.double(), full_matrices=False)
    values = u.mT @ found @ v.mT
    diagonal = values.diagonal(dim1=-2, dim2=-1)
    assert float((values - torch.diag_embed(diagonal)).abs().max()) < 1e-4
    assert float(diagonal.max()) < 1.3
    assert float(diagonal.median()) > 0.6
    assert float((diagonal - 1).abs().mean()) < 0.3


@pytest.mark.parametrize("shape", [(48, 20), (20, 48)])
def test_steps_of_a_matrix_are_those_of_torch(shape: tuple[int, int]) -> None:
    """In bf16, as torch multiplies, with the size of its updates that is like AdamW's."""
    theirs_of = getattr(torch.optim, "Muon", None)
    if theirs_of is None:
        assert tuple(map(int, torch.__version__.split(".")[:2])) < (2, 9)
        return
    own, theirs = (torch.nn.Parameter(drawn(*shape)) for _ in range(2))
    ours = Muon([{"params": [own], "multiplied": torch.bfloat16, **MATRICES}])
    other = theirs_of([theirs], lr=0.02, weight_decay=0.1, momentum=0.9, adjust_lr_fn="match_rms_adamw")
    for step in range(4):
        own.grad = torch.randn(shape, generator=torch.Generator().manual_seed(step))
        theirs.grad = own.grad.clone()
        ours.step()
        other.step()
    with torch.no_grad():
        apart, moved = (own - theirs).norm(), (theirs - drawn(*shape)).norm()
    assert float(apart) < 0.01 * float(moved)
    assert torch.equal(ours.state[own]["momentum_buffer"], other.state[theirs]["momentum_buffer"])


def test_experts_are_matrices_each_by_itself() -> None:
    """One step of a tensor of three is three steps of its matrices."""
    whole, gradient = drawn(3, 16, 24), drawn(24, 16, 3).mT.permute(1, 2, 0).reshape(3, 16, 24)
    parts = [torch.nn.Parameter(each.clone()) for each in whole]
    parameter = torch.nn.Parameter(whole.clone())
    parameter.grad = gradient
    group = {"multiplied": torch.float32, **MATRICES}
    Muon([{"params": [parameter], **group}]).step()
    for part, own in zip(parts, gradient):
        part.grad = own.clone()
    Muon([{"params": parts, **group}]).step()
    assert torch.allclose(parameter, torch.stack(list(parts)), rtol=0, atol=1e-6)


def test_what_is_no_hidden_matrix_is_stepped_by_adamw() -> None:
    """To the last bit: embedding, logits and norms; all others otherwise."""
    by_muon, by_adamw = network_of(), network_of()
    stepped(optimizer_of("muon", by_muon), by_muon, range(3))
    stepped(optimizer_of("adamw", by_adamw), by_adamw, range(3))
    expected = copies(by_adamw)
    alike = {name for name, tensor in copies(by_muon).items() if torch.equal(tensor, expected[name])}
    norms = {name for name in GRAPH.weights if "norm" in name}
    assert alike == {"embedding.weight", "symbols.weight"} | norms
    assert hidden_matrices(GRAPH).keys() == GRAPH.weights.keys() - alike


def test_matrices_of_images_are_those_of_dense_convolutions() -> None:
    graph = residual()
    network = network_of(graph, initial(graph, 1))
    before = copies(network)
    stepped(optimizer_of("muon", network), network, range(1, 2))
    rate = HYPER.learning_rate
    name = "stage1.block1.1.conv.weight"
    moved = (network.tensors()[name].detach() - before[name] * (1 - rate * HYPER.weight_decay)).flatten(1)
    # All singular values near 1, times 0.2 · √(longer side), times the rate.
    norm = float(moved.norm()) / (0.2 * max(moved.shape) ** 0.5 * rate)
    assert norm == pytest.approx(min(moved.shape) ** 0.5, rel=0.3)
    assert not {name for name in hidden_matrices(graph) if name.startswith("classifier")}


def test_a_child_gets_momentum_for_its_matrices_and_moments_for_the_rest() -> None:
    """Through experts, whose matrices are new, and a wider stream, whose γ has a factor."""
    network = network_of()
    optimizer = optimizer_of("muon", network)
    stepped(optimizer, network, range(3))
    parent = arrays(network, optimizer)
    state = parent.state
    assert state["momentum"].keys() == hidden_matrices(GRAPH).keys()
    assert state["exp_avg"].keys() == state["step"].keys() == GRAPH.weights.keys() - state["momentum"].keys()
    child = parent.grown(Upcycle("block1.mlp.out", 4, 2, 0)).grown(WidenStream("embedding", 48, 0))
    grown = network_of(child.graph, child.weights)
    after = optimizer_of("muon", grown)
    set_state(grown, after, child.state)
    found, matrices = state_of(grown, after), hidden_matrices(child.graph)
    assert found["momentum"].keys() == matrices.keys()
    assert found["exp_avg"].keys() == found["step"].keys() == child.graph.weights.keys() - matrices.keys()
    name = "block2.mlp.out.weight"
    assert np.array_equal(found["momentum"][name][:32], state["momentum"][name])
    assert not found["momentum"][name][32:].any()
    assert not found["momentum"]["block1.mlp.out.up"].any()
    factor = np.sqrt(48 / 32)
    np.testing.assert_allclose(found["exp_avg"]["norm.weight"][:32], state["exp_avg"]["norm.weight"] * factor)
    assert int(found["step"]["norm.weight"]) == 3
    assert int(found["step"]["block1.mlp.out.router"]) == 0
    set_gradients(grown, 4)
    for name in grown.graph.statistics:
        grown.tensors()[name].grad = None
    after.step()


def test_muon_multiplies_in_bf16_where_training_does() -> None:
    expected = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float32}
    for format, kind in expected.items():
        groups = optimizer_of("muon", network_of(), format=format).param_groups
        assert groups[-1]["multiplied"] is kind
        assert len(START.weights) == sum(len(group["params"]) for group in groups)
