"""The torch reading of text networks: against loops over numbers, and however it is laid out."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor
from torch.nn import functional as F

from nas.graph import INPUT, Graph, Node
from nas.head import NextSymbol
from nas.layers import Add, Attention, Embedding, Experts, Layer, Linear, Shape
from nas.modules import Network, module_of
from nas.text_seeds import TEXT_SEEDS, gpt_4x128, llama_4x128
from nas.weights import Array, digest, initial, starts
from tests.nas.text.naive import Tallies, naive
from tests.nas.text.samples import TEXT_SAMPLES, texts

BATCH = 3
SMALL = (12,)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def examples(graph: Graph, batch: int = BATCH) -> Tensor:
    least = min(node.layer.symbols for node in graph.nodes if isinstance(node.layer, Embedding))
    return torch.randint(least, (batch, *graph.input), generator=torch.Generator().manual_seed(1))


def network(graph: Graph, kind: torch.dtype = torch.float32, deviation: float = 0.3) -> Network:
    rng = np.random.default_rng(0)
    found = Network(graph).to(kind)
    tensors = {**graph.weights, **graph.statistics}
    found.load({name: rng.normal(0, deviation, shape) for name, shape in tensors.items()})
    return found


def loss(logits: Tensor, following: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), following.flatten())


def by_hand(
    layer: Layer, own: dict[str, Any], x: list[Any], dy: list[Any]
) -> tuple[Any, list[Any], dict[str, Any]]:
    """Of one example, by loops: what the layer puts out, and the gradients of its inputs and its weights."""
    none = {name: torch.zeros_like(tensor).tolist() for name, tensor in own.items()}
    y, backward = naive(layer, Tallies(), {name: tensor.tolist() for name, tensor in own.items()}, none, *x)
    return y, *backward(dy)


@pytest.mark.parametrize("name", TEXT_SAMPLES)
def test_numbers_and_gradients_are_those_of_the_loops(name: str) -> None:
    torch.manual_seed(0)
    layer, inputs = TEXT_SAMPLES[name]
    module = module_of(layer, *inputs).double()
    assert {key: tuple(tensor.shape) for key, tensor in module.named_parameters()} == layer.weights(*inputs)
    assert {key: tuple(tensor.shape) for key, tensor in module.named_buffers()} == layer.statistics(*inputs)
    for tensor in (*module.parameters(), *module.buffers()):
        tensor.data.normal_()
    own, kept = dict(module.named_parameters()), dict(module.named_buffers())
    if isinstance(layer, Embedding):
        reads = [torch.randint(layer.symbols, (BATCH, *inputs[0]))]
    else:
        reads = [drawn(BATCH, *shape).requires_grad_() for shape in inputs]
    y = module.eval()(*reads)
    dy = torch.randn_like(y)
    y.backward(dy)
    sums = {key: torch.zeros_like(tensor) for key, tensor in own.items()}
    for place in range(BATCH):
        right, dx, dw = by_hand(
            layer, own | kept, [read[place].tolist() for read in reads], dy[place].tolist()
        )
        close(y[place], right)
        for read, gradient in zip(reads, dx):
            assert read.grad is not None
            close(read.grad[place], gradient)
        for key, gradient in dw.items():
            sums[key] += torch.tensor(gradient, dtype=torch.float64)
    for key, tensor in own.items():
        assert tensor.grad is not None
        close(tensor.grad, sums[key].tolist())


def close(found: Tensor, right: Any) -> None:
    torch.testing.assert_close(found.detach(), torch.tensor(right, dtype=found.dtype), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in TEXT_SAMPLES if name != "embedding"])
def test_gradients_are_those_of_differences(name: str) -> None:
    torch.manual_seed(0)
    layer, inputs = TEXT_SAMPLES[name]
    module = module_of(layer, *inputs).double()
    for tensor in (*module.parameters(), *module.buffers()):
        tensor.data.normal_()
    reads = tuple(drawn(2, *shape).requires_grad_() for shape in inputs)
    assert torch.autograd.gradcheck(module.eval(), reads)


@pytest.mark.parametrize("heads", [2, 6])
@pytest.mark.parametrize("rotary", [0.0, 10_000.0])
def test_no_position_sees_what_follows(heads: int, rotary: float) -> None:
    layer, inputs = Attention(heads, 2, rotary), ((7, heads * 4), (7, 8), (7, 8))
    q, k, v = [drawn(1, *shape) for shape in inputs]
    module = module_of(layer, *inputs)
    before = module(q, k, v)
    for tensor in (q, k, v):
        tensor[:, 4:] = 100.0
    after = module(q, k, v)
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.equal(before[:, 4:], after[:, 4:])


def naive_logits(graph: Graph, weights: dict[str, Array], symbols: list[int]) -> Any:
    values: dict[str, Any] = {INPUT: symbols}
    for node in graph.nodes:
        own = {
            tensor: weights[f"{node.name}.{tensor}"].tolist()
            for tensor in (
                *node.layer.weights(*graph.reads(node)),
                *node.layer.statistics(*graph.reads(node)),
            )
        }
        values[node.name], _ = naive(node.layer, Tallies(), own, {}, *[values[read] for read in node.inputs])
    return values[graph.output]


@given(texts(dropout=False))
@settings(max_examples=40, deadline=None)
def test_any_network_computes_what_the_loops_do(graph: Graph) -> None:
    found, read = network(graph, torch.float64).eval(), examples(graph, 1)
    weights = {name: tensor.detach().numpy() for name, tensor in found.tensors().items()}
    logits = found(read)
    close(logits[0], naive_logits(graph, weights, read[0].tolist()))
    loss(logits, read % graph.classes).backward()
    assert all(tensor.grad is not None for tensor in found.parameters())


@given(texts())
@settings(max_examples=15, deadline=None)
def test_every_node_has_its_shape(graph: Graph) -> None:
    with torch.device("meta"):
        found = Network(graph)
        read = torch.zeros(BATCH, *graph.input, dtype=torch.int64)
    shapes: list[Shape] = []
    for module in found.layers:
        module.register_forward_hook(lambda _module, _inputs, output: shapes.append(tuple(output.shape[1:])))
    found(read)
    assert shapes == [graph.shapes[node.name] for node in graph.nodes]


@pytest.mark.parametrize("build", [gpt_4x128, llama_4x128])
def test_channels_last_in_memory_changes_nothing(build: Any) -> None:
    graph = build(SMALL)
    one, other = network(graph), network(graph)
    other.place(torch.device("cpu"))
    read = examples(graph)
    assert torch.equal(one(read), other(read))


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_autocast(kind: torch.dtype) -> None:
    graph = llama_4x128(SMALL)
    found, read = network(graph, deviation=0.05), examples(graph)
    exact = found(read)
    with torch.autocast("cpu", kind):
        logits = found(read)
    assert logits.dtype == kind
    loss(logits.float(), read).backward()
    assert all(tensor.dtype == torch.float32 for tensor in found.tensors().values())
    assert all(tensor.grad is not None and tensor.grad.isfinite().all() for tensor in found.parameters())
    assert (logits.float() - exact).abs().max() < 0.05 * exact.abs().max()


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


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda found: pickle.loads(pickle.dumps(found))])
def test_a_network_that_was_validated_first_can_be_trained_and_copied(duplicate: Any) -> None:
    """The table of angles is made by the first pass, whatever it is for."""
    graph = llama_4x128(SMALL)
    found, read = network(graph), examples(graph)
    with torch.inference_mode():
        first = found(read)
    other = duplicate(found)
    for trained in (found, other):
        loss(trained(read), read).backward()
        assert torch.equal(trained(read), first)
    assert other.double()(read).dtype == torch.float64


def test_an_expert_that_is_not_chosen_has_a_gradient_of_zero() -> None:
    """And is chosen sooner later: its balance grows in training, and in training only."""
    layer = Experts(3, 2, 4)
    module: Any = module_of(layer, (6, 8)).double()
    for tensor in module.parameters():
        tensor.data.normal_()
    module.balance.data = torch.tensor([0.0, 0.0, -100.0]).double()
    before = module.balance.clone()
    values = drawn(2, 6, 8)
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
    values, loads = torch.randn(4, 64, 8) + module.router.data[:2].sum(0), []
    made = module._made
    module._made = lambda rows, load: (loads.append(load), made(rows, load))[1]
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
    nodes = (
        Node("embedding", Embedding(5, 8), (INPUT,)),
        Node("attention", Attention(2, 2, rotary=0.0), ("embedding", "embedding", "embedding")),
        Node("add", Add(), ("attention", "embedding")),
        Node("symbols", Linear(5), ("add",)),
    )
    graph = Graph((6,), nodes, head=NextSymbol())
    found, read = network(graph), examples(graph)
    loss(found(read), read).backward()


def test_tensors_at_the_start() -> None:
    graph = gpt_4x128()
    found = initial(graph, 1)
    assert {name: values.shape for name, values in found.items()} == graph.weights
    for name, values in found.items():
        if values.ndim == 2:
            assert values.std() == pytest.approx(0.02, rel=0.03), name
        else:
            assert set(values.tolist()) == {float("norm" in name and name.endswith("weight"))}, name
    for layer, inputs in TEXT_SAMPLES.values():
        for tensor, shape in layer.weights(*inputs).items():
            assert starts(layer, tensor, shape, inputs, np.random.default_rng(0)).dtype == np.float32


def test_the_fingerprint_of_a_seed_is_pinned() -> None:
    assert (
        digest(initial(llama_4x128(), 1))
        == "0eab0352a7cdae8ed9222662e69d6d24d43071e3967e89e9e811bc0a154f1ec8"
    )


@pytest.mark.parametrize("name", TEXT_SEEDS)
def test_an_untrained_network_knows_nothing(name: str) -> None:
    """Its loss is about ln 256 of nats, and half the variance of its first answers more."""
    graph = TEXT_SEEDS[name](SMALL)
    found = Network(graph)
    found.load(initial(graph, 0))
    read = torch.randint(256, (8, *SMALL), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert loss(found(read), read.roll(-1, 1)).item() == pytest.approx(5.545, abs=0.4)
