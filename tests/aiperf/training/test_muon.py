"""Muon: orthogonal updates of matrices, AdamW of all else, and state that a child goes on with."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from aiperf.device import bind
from aiperf.parallel.parallel import make_step
from aiperf.training.kept_network import Kept
from aiperf.training.muon import Muon, orthogonal
from aiperf.training.optimizers import make_optimizer, set_state, state_of
from nas.matrices import hidden_matrices
from nas.modules import Network
from nas.morphisms.text import Upcycle, WidenStream
from nas.seeds import residual
from nas.weights import initial
from tests.aiperf.training.test_optimizers import HYPER, SCALER, copies, network_of, set_gradients
from tests.aiperf.training.text_trials import GRAPH, START

OTHERS = {"embedding.weight", "symbols.weight"}


def muon_of(network: Network, format: str = "fp32") -> torch.optim.Optimizer:
    return make_optimizer("muon", network, HYPER, bind("cpu", 0), format)


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
    group = {"lr": 0.02, "betas": (0.9, 0.95), "eps": 1e-8, "fused": False, "weight_decay": 0.1}
    ours = Muon([{"params": [own], "muon": True, "multiplied": torch.bfloat16, **group}])
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
    group = {"lr": 0.02, "betas": (0.9, 0.95), "eps": 1e-8, "fused": False, "weight_decay": 0.1}
    group |= {"muon": True, "multiplied": torch.float32}
    Muon([{"params": [parameter], **group}]).step()
    for part, own in zip(parts, gradient):
        part.grad = own.clone()
    Muon([{"params": parts, **group}]).step()
    assert torch.allclose(parameter, torch.stack(list(parts)), rtol=0, atol=1e-6)


def test_what_is_no_hidden_matrix_is_stepped_by_adamw() -> None:
    """To the last bit: embedding, logits and norms; all others otherwise."""
    by_muon, by_adamw = network_of(), network_of()
    optimizers = muon_of(by_muon), make_optimizer("adamw", by_adamw, HYPER, bind("cpu", 0), "fp32")
    for step in range(3):
        for network, optimizer in zip((by_muon, by_adamw), optimizers):
            set_gradients(network, step)
            make_step(optimizer, SCALER, 0.0)
    expected = copies(by_adamw)
    alike = {name for name, tensor in copies(by_muon).items() if torch.equal(tensor, expected[name])}
    assert alike == OTHERS | {name for name in GRAPH.weights if "norm" in name}
    assert hidden_matrices(GRAPH).keys() == GRAPH.weights.keys() - alike


def test_matrices_of_images_are_those_of_dense_convolutions() -> None:
    graph = residual()
    network = Network(graph)
    network.load(initial(graph, 1))
    set_gradients(network, 1)
    before, optimizer = copies(network), muon_of(network)
    optimizer.step()
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
    optimizer = muon_of(network)
    for step in range(3):
        set_gradients(network, step)
        make_step(optimizer, SCALER, 0.0)
    state = {
        kind: {name: tensor.numpy() for name, tensor in tensors.items()}
        for kind, tensors in state_of(network, optimizer).items()
    }
    assert state["momentum"].keys() == hidden_matrices(GRAPH).keys()
    assert state["exp_avg"].keys() == state["step"].keys() == GRAPH.weights.keys() - state["momentum"].keys()
    weights = {name: tensor.numpy() for name, tensor in copies(network).items()}
    parent = Kept(GRAPH, weights, state)
    child = parent.grown(Upcycle("block1.mlp.out", 4, 2, 0)).grown(WidenStream("embedding", 48, 0))
    grown = Network(child.graph)
    grown.load(child.weights)
    after = muon_of(grown)
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
    formats = {format: muon_of(network_of(), format).param_groups[-1] for format in ("fp32", "bf16", "fp16")}
    assert {format: group["multiplied"] for format, group in formats.items()} == {
        "fp32": torch.float32,
        "bf16": torch.bfloat16,
        "fp16": torch.float32,
    }
    assert len(START.weights) == sum(len(group["params"]) for group in muon_of(network_of()).param_groups)
