"""The torch reading of text networks: against loops over numbers, and however it is laid out."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor
from torch.nn.functional import cross_entropy

from nas.graph import INPUT, Graph
from nas.head import NextSymbol
from nas.layers import Add, Attention, Embedding, Experts, Linear
from nas.modules import Network, module_of
from nas.text_seeds import TEXT_SEEDS, gpt_4x128, llama_4x128
from nas.weights import initial
from tests.nas.graphs import Draft
from tests.nas.grown import standard
from tests.nas.networks import examples, loss, network
from tests.nas.text.naive import Tallies, naive
from tests.nas.text.samples import TEXT_SAMPLES, texts

BATCH = 3


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def close(found: Tensor, right: Any) -> None:
    torch.testing.assert_close(found.detach(), torch.tensor(right, dtype=found.dtype), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", TEXT_SAMPLES)
def test_numbers_and_gradients_are_those_of_the_loops(name: str) -> None:
    """The loops take one example after the other, and add up the gradients of weights."""
    torch.manual_seed(0)
    layer, inputs = TEXT_SAMPLES[name]
    module = module_of(layer, *inputs).double().eval()
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for tensor in tensors.values():
        tensor.data.normal_()
    own = {key: tensor.tolist() for key, tensor in tensors.items()}
    sums = {key: torch.zeros_like(tensor).tolist() for key, tensor in module.named_parameters()}
    if isinstance(layer, Embedding):
        reads = [torch.randint(layer.symbols, (BATCH, *inputs[0]))]
    else:
        reads = [torch.randn(BATCH, *shape, dtype=torch.float64).requires_grad_() for shape in inputs]
    y = module(*reads)
    dy = torch.randn_like(y)
    y.backward(dy)
    totals = {key: torch.zeros_like(tensor) for key, tensor in module.named_parameters()}
    for place in range(BATCH):
        right, backward = naive(
            layer, Tallies(), own, copy.deepcopy(sums), *[r[place].tolist() for r in reads]
        )
        close(y[place], right)
        dx, dw = backward(dy[place].tolist())
        for read, gradient in zip(reads, dx):
            assert read.grad is not None
            close(read.grad[place], gradient)
        for key, gradient in dw.items():
            totals[key] += torch.tensor(gradient, dtype=torch.float64)
    for key, parameter in module.named_parameters():
        assert parameter.grad is not None
        close(parameter.grad, totals[key].tolist())


@given(texts(dropout=False))
@settings(max_examples=30, deadline=None)
def test_any_network_of_text_computes_what_the_loops_do(graph: Graph) -> None:
    found, read = network(graph, torch.float64).eval(), examples(graph, 1)
    values: dict[str, Any] = {INPUT: read[0].tolist()}
    tensors = {name: tensor.tolist() for name, tensor in found.tensors().items()}
    for node in graph.nodes:
        names = [name for name in tensors if name.rpartition(".")[0] == node.name]
        own = {name.rpartition(".")[2]: tensors[name] for name in names}
        values[node.name], _ = naive(node.layer, Tallies(), own, {}, *[values[read] for read in node.inputs])
    logits = found(read)
    close(logits[0], values[graph.output])
    loss(logits).backward()
    assert all(tensor.grad is not None for tensor in found.parameters())


@pytest.mark.parametrize("heads", [2, 6])
@pytest.mark.parametrize("rotary", [0.0, 10_000.0])
def test_no_position_sees_what_follows(heads: int, rotary: float) -> None:
    layer, inputs = Attention(heads, 2, rotary), ((7, heads * 4), (7, 8), (7, 8))
    q, k, v = [torch.randn(1, *shape) for shape in inputs]
    module = module_of(layer, *inputs)
    before = module(q, k, v)
    for tensor in (q, k, v):
        tensor[:, 4:] = 100.0
    after = module(q, k, v)
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.equal(before[:, 4:], after[:, 4:])


def test_a_window_hides_what_is_far_behind() -> None:
    """And a text that is shorter than the network's is masked alike."""
    layer, inputs = Attention(2, 2, rotary=0.0, window=3), ((7, 8),) * 3
    q, k, v = [torch.randn(1, *shape) for shape in inputs]
    module = module_of(layer, *inputs)
    before = module(q, k, v)
    torch.testing.assert_close(module(q[:, :5], k[:, :5], v[:, :5]), before[:, :5])
    for tensor in (k, v):
        tensor[:, 1] = 100.0
    after = module(q, k, v)
    changed = (before != after).flatten(2).any(2)[0].tolist()
    assert changed == [False, True, True, True, False, False, False]


def test_a_tied_network_is_the_other_with_one_weight_twice() -> None:
    """The gradient of that weight is the sum of both."""
    tied, apart = (standard("gated", tied=tied) for tied in (True, False))
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


@pytest.mark.parametrize("build", [gpt_4x128, llama_4x128])
def test_channels_last_in_memory_changes_nothing(build: Callable[..., Graph]) -> None:
    graph = build((12,))
    one, other = network(graph), network(graph)
    other.place(torch.device("cpu"), torch.channels_last)
    read = examples(graph)
    assert torch.equal(one(read), other(read))


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


def test_what_attention_keeps_for_its_gradient_is_not_written_over() -> None:
    """Its output is memory that its backward pass reads, so no sum may be made in its place."""
    draft = Draft()
    draft.put("embedding", Embedding(5, 8))
    draft.put("attention", Attention(2, 2, rotary=0.0), *["embedding"] * 3)
    draft.put("add", Add(), "attention", "embedding")
    draft.put("symbols", Linear(5))
    graph = draft.graph(6, head=NextSymbol())
    loss(network(graph)(examples(graph))).backward()


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
