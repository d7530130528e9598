"""The torch reading of a graph: every layer, every way to lay it out, and the memory it frees; of text, what
no comparison with formulas shows."""

from __future__ import annotations

import copy
import inspect
import pickle
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode

from nas.graph import Graph
from nas.head import NextSymbol
from nas.layers import (
    Add,
    Attention,
    BatchNorm,
    Dense,
    Dropout,
    Embedding,
    Experts,
    Flatten,
    GlobalPool,
    HardSigmoid,
    HardSwish,
    Layer,
    Linear,
    MissingReading,
    ReLU,
    ReLU6,
)
from nas.modules import Network, module_of
from nas.seeds import residual
from nas.text_seeds import TEXT_SEEDS, llama_4x128
from nas.weights import Array, initial
from tests.nas.formulas import by_hand, formula
from tests.nas.graphs import LAYERS, SAMPLES, TEXT_SAMPLES, chain, graphs, grouped, texts, wired
from tests.nas.grown import SYMBOLS, standard
from tests.nas.networks import examples, loss, network, random_weights
from tests.tables import ComesTo

ALL = {**SAMPLES, **TEXT_SAMPLES}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def state(found: Network) -> dict[str, Array]:
    return {name: tensor.detach().clone().numpy() for name, tensor in found.tensors().items()}


def test_every_layer_has_a_module_and_a_formula() -> None:
    formulas = inspect.getsource(formula)
    assert [kind.__name__ for kind in LAYERS if f"case layers.{kind.__name__}(" not in formulas] == []
    nothing = module_of.dispatch(object)
    assert [kind.__name__ for kind in LAYERS if module_of.dispatch(kind) is nothing] == []
    with pytest.raises(MissingReading, match=r"^object has no torch module"):
        module_of(object(), (4,))  # type: ignore[arg-type]


@pytest.mark.contract
@pytest.mark.parametrize("name", ALL)
def test_a_module_has_the_tensors_of_its_layer_and_computes_its_formula(name: str) -> None:
    """Forward and backward, in training; gradients of what it reads, too."""
    torch.manual_seed(0)
    layer, inputs = ALL[name]
    module = module_of(layer, *inputs).double()
    own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    shapes = {key: tuple(tensor.shape) for key, tensor in own.items()}
    assert shapes == {**layer.weights(*inputs), **layer.statistics(*inputs)}
    assert [key for key, _ in module.named_parameters()] == list(layer.weights(*inputs))
    for tensor in own.values():
        tensor.data.normal_()
    reads: list[Tensor] = [torch.randn(3, *shape, dtype=torch.float64).requires_grad_() for shape in inputs]
    if isinstance(layer, Embedding):
        reads = [torch.randint(layer.symbols, (3, *inputs[0]))]
    copies = {key: tensor.detach().clone().requires_grad_() for key, tensor in own.items()}
    results = []
    for tensors, forward in ((own, module), (copies, lambda *x: formula(layer, copies, True, *x))):
        torch.manual_seed(1)  # for dropout
        y = forward(*reads)
        assert tuple(y.shape) == (3, *layer.shape(*inputs))
        wanted = [tensors[key] for key in layer.weights(*inputs)]
        wanted += [read for read in reads if read.requires_grad]
        towards = torch.linspace(-1, 1, y.numel(), dtype=torch.float64).view_as(y)
        results.append((y, *torch.autograd.grad(y, wanted, towards)))
    noise = 1e-7 if isinstance(layer, (HardSwish, HardSigmoid)) else 1e-10  # a sixth in fp32, in gradients
    torch.testing.assert_close(*results, rtol=noise, atol=noise)


@pytest.mark.contract
@given(graphs() | texts(), st.booleans(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_logits_and_gradients_are_those_of_the_formulas(
    graph: Graph, training: bool, channels_last: bool
) -> None:
    found = network(graph, torch.float64).train(training)
    if channels_last:
        found.place(torch.device("cpu"), torch.channels_last)
    tensors = {name: tensor.detach().clone() for name, tensor in found.tensors().items()}
    for name in graph.weights:
        tensors[name].requires_grad_()

    batch = examples(graph, kind=torch.float64)
    results: list[Tensor] = []
    for forward in (found, lambda batch: by_hand(graph, tensors, batch, training)):
        torch.manual_seed(2)  # for dropout
        logits = forward(batch.clone())
        loss(logits).backward()
        results.append(logits.detach())
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-9)
    live = found.tensors()
    # In the gradients of these, torch has a sixth as a number of fp32, whatever the format.
    rounds = any(isinstance(node.layer, (HardSwish, HardSigmoid)) for node in graph.nodes)
    noise = {"rtol": 1e-5, "atol": 1e-7} if rounds else {"rtol": 1e-7, "atol": 1e-9}
    for name in graph.weights:
        torch.testing.assert_close(live[name].grad, tensors[name].grad, **noise)


def test_statistics_follow_the_batch_by_a_tenth() -> None:
    graph = chain(BatchNorm(), GlobalPool(), Dense(2))
    found = network(graph, torch.float64)
    before, batch = state(found), examples(graph, kind=torch.float64)
    found.train()(batch)
    after = state(found)
    for name, new in (("running_mean", batch.mean((0, 2, 3))), ("running_var", batch.var((0, 2, 3)))):
        key = f"BatchNorm.0.{name}"
        np.testing.assert_allclose(after[key], 0.9 * before[key] + 0.1 * new.numpy(), rtol=1e-12)
    found.eval()(batch)
    assert all((after[name] == value).all() for name, value in state(found).items())


def test_a_device_is_not_waited_for_while_a_network_moves_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any copy waits that is not from pinned memory, or not said to need no waiting: CUDA Runtime API, "API
    synchronization behavior"."""
    pinned, copied = list[int](), list[bool]()

    class Copies(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten._to_copy.default and kwargs["device"].type == "meta":
                copied.append(kwargs.get("non_blocking", False) and id(args[0]) == pinned[-1])
            return func(*args, **(kwargs or {}))

    def pin(tensor: Tensor) -> Tensor:
        pinned.append(id(tensor))
        return tensor

    monkeypatch.setattr(Tensor, "pin_memory", pin)
    network = Network(residual((3, 8, 8), 3))
    network.load(initial(network.graph, 0))
    with Copies():
        network.place(torch.device("meta"), torch.channels_last)
    assert copied == [True] * len(network.tensors())
    assert network.tensors()["stem.conv.weight"].is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_weights_go_in_and_come_out_in_order_and_live(memory_format: torch.memory_format, kind: type) -> None:
    graph = grouped()
    weights: dict[str, Array] = {name: array.astype(kind) for name, array in random_weights(graph).items()}
    for array in weights.values():
        array.flags.writeable = False
    found = Network(graph).to(torch.float64)
    found.to(memory_format=memory_format)  # type: ignore[call-overload]
    found.load(weights)
    tensors = found.tensors()
    assert list(tensors) == [*graph.weights, *graph.statistics]
    for name, array in state(found).items():
        assert array.dtype == np.float64
        np.testing.assert_array_equal(array, weights[name])
    images = [tensor for tensor in tensors.values() if tensor.dim() == 4]
    assert all(tensor.is_contiguous(memory_format=memory_format) for tensor in images)
    own = [parameter.data_ptr() for parameter in found.parameters()]
    assert [tensors[name].data_ptr() for name in graph.weights] == own
    assert len(list(found.buffers())) == len(graph.statistics)


def test_building_draws_no_random_numbers() -> None:
    """Initial values would cost time, and would move dropout's and the augmentation's stream."""
    before = torch.get_rng_state()
    Network(residual())
    assert torch.equal(torch.get_rng_state(), before)


def test_weights_of_another_network_are_refused_whole(comes_to_what_was_read: ComesTo) -> None:
    found = network(residual())
    before = state(found)

    def loaded(name: str, values: Array | None) -> None:
        weights = random_weights(residual(), seed=5)
        weights.pop(name, None)
        if values is not None:
            weights[name] = values
        found.load(weights)

    comes_to_what_was_read("refused_weights.txt", {"loaded": loaded, "np": np})
    assert all((before[name] == array).all() for name, array in state(found).items())


def test_tensors_are_freed_when_last_read() -> None:
    graph = residual()
    found = network(graph).eval()
    seen: list[weakref.ref[Tensor]] = []
    alive: list[int] = []

    def look(_module: object, _inputs: object, output: Tensor) -> None:
        seen.append(weakref.ref(output))
        # What is written in place comes by twice.
        alive.append(len({id(reference()) for reference in seen if reference() is not None}))

    for module in found.layers:
        module.register_forward_hook(look)
    with torch.no_grad():
        found(examples(graph))
    # A block's entry, its branch before and its branch behind a layer.
    assert (max(alive), alive[-1]) == (3, 2)


@pytest.mark.parametrize(
    "layers",
    [(ReLU(),), (ReLU(), ReLU()), (ReLU6(), ReLU6(), ReLU()), (Dropout(0.5), ReLU()), (BatchNorm(), ReLU())],
)
@pytest.mark.parametrize("training", [False, True])
def test_the_images_are_not_written_to(layers: tuple[Layer, ...], training: bool) -> None:
    graph = chain(*layers, Flatten(), ReLU(), Dense(3))
    batch = examples(graph)
    before = batch.clone()
    found = network(graph).train(training)
    found(batch).sum().backward()
    assert torch.equal(batch, before)


@pytest.mark.parametrize("layer", [ReLU(), Attention(2, 2, rotary=0.0)], ids=str)
def test_what_a_layer_keeps_for_its_gradient_is_not_written_over(layer: Layer) -> None:
    """Its output is memory that its backward pass reads, so no sum may be made in its place."""
    reads = ["embedding"] * (3 if isinstance(layer, Attention) else 1)
    rows = {"embedding": [Embedding(5, 8)], "keeps": [layer, *reads], "add": [Add(), "keeps", "embedding"]}
    graph = wired({**rows, "symbols": [Linear(5)]}, 6, head=NextSymbol())
    loss(network(graph)(examples(graph))).backward()


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("graph", [grouped(), llama_4x128((12,))])
def test_autocast(graph: Graph, kind: torch.dtype) -> None:
    found, batch = network(graph), examples(graph)
    if not isinstance(graph.head, NextSymbol):
        found.place(torch.device("cpu"), torch.channels_last)
        batch = batch.to(memory_format=torch.channels_last)
    exact = found(batch)
    with torch.autocast("cpu", kind):
        logits = found(batch)
    assert logits.dtype == kind
    loss(logits.float()).backward()
    assert all(tensor.dtype == torch.float32 for tensor in found.tensors().values())
    assert all(tensor.grad is not None and tensor.grad.isfinite().all() for tensor in found.parameters())
    assert (logits.float() - exact).abs().max() < 0.05 * exact.abs().max()


def test_a_sum_of_two_widths_is_not_rounded_to_the_narrow_one() -> None:
    module: Any = module_of(Add(), (2,), (2,))
    module.inplace = True
    narrow, wide = torch.ones(1, 2, dtype=torch.bfloat16), torch.full((1, 2), 2**-20)
    assert module(narrow, wide).dtype == torch.float32
    assert narrow.tolist() == [[1, 1]]


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda found: pickle.loads(pickle.dumps(found))])
@pytest.mark.parametrize("graph", [residual(), llama_4x128((12,)), standard("gated", window=3)])
def test_a_copy_computes_with_its_own_weights_and_can_be_trained(graph: Graph, duplicate: Any) -> None:
    """Also if a network was validated first: the table of angles is made by the first pass, whatever for."""
    found, read = network(graph).eval(), examples(graph)
    with torch.inference_mode():
        first = found(read)
    other = duplicate(found)
    for each in (found, other):
        loss(each(read)).backward()
        assert torch.equal(each(read), first)
    for parameter in found.parameters():
        parameter.data.zero_()
    assert torch.equal(other(read), first)
    assert not torch.equal(found(read), first)
    assert other.double()(examples(graph, kind=torch.float64)).dtype == torch.float64


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
