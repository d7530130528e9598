"""The torch reading of text networks: what no comparison with formulas shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from nas.layers import Attention, Experts, Linear
from nas.modules import Network, module_of
from nas.text_seeds import TEXT_SEEDS
from nas.weights import initial
from tests.nas.grown import SYMBOLS, standard
from tests.nas.networks import examples, loss, network


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def test_a_text_that_is_shorter_than_the_networks_is_masked_alike() -> None:
    layer, inputs = Attention(2, 2, rotary=0.0, window=3), ((7, 8),) * 3
    q, k, v = [torch.randn(1, *shape) for shape in inputs]
    module = module_of(layer, *inputs)
    torch.testing.assert_close(module(q[:, :5], k[:, :5], v[:, :5]), module(q, k, v)[:, :5])


@pytest.mark.parametrize("bias", [False, True])
def test_a_tied_network_is_the_other_with_one_weight_twice(bias: bool) -> None:
    """The gradient of that weight is the sum of both."""
    *nodes, last = standard("gated").nodes
    ends = [replace(last, layer=Linear(SYMBOLS, bias, tied=tied)) for tied in (True, False)]
    tied, apart = (replace(standard("gated"), nodes=(*nodes, end)) for end in ends)
    assert apart.num_parameters - tied.num_parameters == apart.shapes["embedding"][1] * apart.classes
    one, other = network(tied, torch.float64), Network(apart).double()
    values = {name: tensor.detach().numpy() for name, tensor in one.tensors().items()}
    other.load({**values, "symbols.weight": values["embedding.weight"]})
    read = examples(tied)
    torch.testing.assert_close(one(read), other(read))
    for found in (one, other):
        loss(found(read)).backward()
    gradients = {name: tensor.grad for name, tensor in other.tensors().items()}
    gradients["embedding.weight"] += gradients.pop("symbols.weight")
    for name, tensor in one.tensors().items():
        torch.testing.assert_close(tensor.grad, gradients[name])


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_late_positions_keep_their_angles(kind: torch.dtype) -> None:
    """In fp32 an angle of 4,000 radians is off by 1e-4, in bf16 a cosine by 4e-3."""
    inputs = ((4096, 2),) * 3
    module = module_of(Attention(1, 1), *inputs)
    module(*[torch.ones(1, *shape, dtype=kind) for shape in inputs])
    table: Any = module._turns
    places = np.arange(4096)
    assert table.dtype == torch.float32
    np.testing.assert_allclose(table[0, :, 0].numpy(), np.cos(places), atol=1e-7)
    np.testing.assert_allclose(table[1, :, 0].numpy(), np.sin(places), atol=1e-7)


def test_an_expert_that_is_not_chosen_has_a_gradient_of_zero() -> None:
    """And is chosen sooner later: its balance grows in training, and in training only."""
    layer = Experts(3, 2, 4)
    module: Any = module_of(layer, (6, 8)).double()
    for tensor in module.parameters():
        tensor.data.normal_()
    module.balance.data = torch.tensor([0.0, 0.0, -100.0]).double()
    before = module.balance.clone()
    values = torch.randn(2, 6, 8, dtype=torch.float64)
    module.eval()(values).sum().backward()
    for name in ("gate", "up", "down"):
        gradient = module.get_parameter(name).grad
        assert not gradient[2].any()
        assert gradient[:2].any()
    assert torch.equal(module.balance, before)
    module.train()(values)
    assert (module.balance - before).tolist() == pytest.approx([-1e-3, -1e-3, 1e-3])


def test_the_balance_gives_every_expert_work() -> None:
    """From a router that sends next to nothing to one of them, in 10,000 steps."""
    torch.manual_seed(0)
    module: Any = module_of(Experts(4, 2, 4), (64, 8))
    for tensor in module.parameters():
        tensor.data.normal_()
    module.balance.zero_()
    values, made = torch.randn(4, 64, 8) + module.router.data[:2].sum(0), module._made
    loads: list[list[int]] = []

    def recorded(rows: Tensor, load: list[int]) -> Tensor:
        loads.append(load)
        kept: Tensor = made(rows, load)
        return kept

    module._made = recorded
    module(values)
    for _ in range(100):
        for _ in range(100):
            module._balance(torch.tensor(loads[-1]))
        module(values)
    assert min(loads[0]) < 10
    assert min(loads[-1]) > 100
    assert sum(loads[-1]) == 2 * 4 * 64


@pytest.mark.parametrize("name", [name for name in TEXT_SEEDS if "768" not in name and "small" not in name])
def test_an_untrained_network_knows_nothing(name: str) -> None:
    """Its loss is about ln 256 of nats, and half the variance of its first answers more."""
    graph = TEXT_SEEDS[name]((12,))
    found = Network(graph)
    found.load(initial(graph, 0))
    read = torch.randint(256, (8, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        nats = cross_entropy(found(read).flatten(0, 1), read.roll(-1, 1).flatten())
    assert nats.item() == pytest.approx(5.545, abs=0.4)
