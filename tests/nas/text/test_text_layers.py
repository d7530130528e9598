"""Layers of sequences: shapes, weights and operations, against figures by hand and loops that count."""

from __future__ import annotations

import random
from keyword import iskeyword
from math import inf, nan, prod
from typing import Any

import pytest

from nas.graph import INPUT, Graph, Node
from nas.head import Classes, NextSymbol
from nas.layers import (
    GELU,
    Add,
    Attention,
    BatchNorm,
    Conv2d,
    Dense,
    Dropout,
    Embedding,
    Experts,
    Gate,
    GlobalPool,
    Layer,
    LayerNorm,
    Linear,
    MaxPool,
    Positions,
    Product,
    ReLU,
    RMSNorm,
    Shape,
    ShapeError,
)
from nas.ops import Cost, Ops
from tests.nas.text.naive import Tallies, Tally, cross_entropy, log_probability, naive
from tests.nas.text.samples import TEXT, TEXT_SAMPLES


def alike(row: str, operations: Ops) -> dict[str, Cost]:
    """Forward, both gradients and validation cost the same."""
    return {row: Cost(operations, operations, operations, operations)}


def sums(row: str, number: int) -> dict[str, Cost]:
    return {row: Cost(Ops(add=number), Ops(), Ops(add=number), Ops(add=number))}


# (5, 12) has 60 elements; of 5 positions a head has 15 pairs.
BY_HAND = {
    "embedding": (TEXT, {"embedding": Cost(weight_grad=Ops(add=60))}),
    "positions": (TEXT, sums("positions", 60)),
    "linear": ((5, 8), alike("linear", Ops(mac=480))),
    "linear, bias": ((5, 8), {**alike("linear", Ops(mac=480)), **sums("bias", 40)}),
    # each position: 36 mul, 12 add, 2 div, 1 sqrt; 48 mul, 23 add, 1 div; 12 mul, 12 add
    "RMSNorm": (
        TEXT,
        {
            "rms_norm": Cost(
                Ops(mul=180, add=60, div=10, sqrt=5),
                Ops(mul=240, add=115, div=5),
                Ops(mul=60, add=60),
                Ops(mul=180, add=60, div=10, sqrt=5),
            )
        },
    ),
    # each position: 36 mul, 47 add, 3 div, 1 sqrt; 48 mul, 46 add, 2 div; 12 mul, 24 add
    "LayerNorm": (
        TEXT,
        {
            "layer_norm": Cost(
                Ops(mul=180, add=235, div=15, sqrt=5),
                Ops(mul=240, add=230, div=10),
                Ops(mul=60, add=120),
                Ops(mul=180, add=235, div=15, sqrt=5),
            )
        },
    ),
    # 3 heads of 4 features: 45 pairs in 15 rows
    "attention": (
        TEXT,
        {
            "attention": Cost(
                Ops(mac=360, mul=45, cmp=30, add=75, exp=45, div=45),
                Ops(mac=720, mul=135, add=75),
                Ops(),
                Ops(mac=360, mul=45, cmp=30, add=75, exp=45, div=45),
            )
        },
    ),
    # 6 heads of 2 features: 90 pairs in 30 rows; 4 further heads, 2 · 4 · 5 · 2 sums
    "attention, grouped": (
        TEXT,
        {
            "attention": Cost(
                Ops(mac=360, mul=90, cmp=60, add=150, exp=90, div=90),
                Ops(mac=720, mul=270, add=230),
                Ops(),
                Ops(mac=360, mul=90, cmp=60, add=150, exp=90, div=90),
            )
        },
    ),
    # 3 heads read one group: 2 · 2 · 5 · 4 sums; 80 elements are turned
    "attention, rotary": (
        TEXT,
        {
            "attention": Cost(
                Ops(mac=360, mul=45, cmp=30, add=75, exp=45, div=45),
                Ops(mac=720, mul=135, add=155),
                Ops(),
                Ops(mac=360, mul=45, cmp=30, add=75, exp=45, div=45),
            ),
            "rotary": Cost(Ops(mul=160, add=80), Ops(mul=160, add=80), Ops(), Ops(mul=160, add=80)),
        },
    ),
    # each position, router of 60: 5 + 3 add, 4 + 3 cmp, 2 exp, 2 div; 4 mul, 3 add. Experts of 3 · 6 · 12: 24
    # mul, 12 add; 48 mul, 22 + 48 add; SiLU and product of 12: 12 exp, 12 add, 12 div, 24 mul; 60 mul, 24 add
    "experts": (
        TEXT,
        {
            "router": Cost(
                Ops(mac=300, add=40, cmp=35, exp=10, div=10),
                Ops(mac=300, mul=20, add=15),
                Ops(mac=300),
                Ops(mac=300, add=40, cmp=35, exp=10, div=10),
            ),
            "experts": Cost(
                Ops(mac=2160, mul=240, add=120, exp=60, div=60),
                Ops(mac=2160, mul=540, add=470),
                Ops(mac=2160),
                Ops(mac=2160, mul=240, add=120, exp=60, div=60),
            ),
        },
    ),
    # router of 48: 4 + 5 add, 3 + 2 + 1 cmp, 3 exp, 3 div; 6 mul, 5 add. Experts of 2 · 8 · 12: 36 mul, 24
    # add; 72 mul, 33 + 36 add; GELU of 24: 72 mul, 24 add, 24 exp; 120 mul, 24 add, 24 exp
    "experts, plain": (
        TEXT,
        {
            "router": Cost(
                Ops(mac=240, add=45, cmp=30, exp=15, div=15),
                Ops(mac=240, mul=30, add=25),
                Ops(mac=240),
                Ops(mac=240, add=45, cmp=30, exp=15, div=15),
            ),
            "experts": Cost(
                Ops(mac=2880, mul=540, add=240, exp=120),
                Ops(mac=2880, mul=960, add=465, exp=120),
                Ops(mac=2880),
                Ops(mac=2880, mul=540, add=240, exp=120),
            ),
        },
    ),
    "GELU": (
        TEXT,
        {
            "gelu": Cost(
                Ops(mul=180, add=60, exp=60),
                Ops(mul=300, add=60, exp=60),
                Ops(),
                Ops(mul=180, add=60, exp=60),
            )
        },
    ),
    "SiLU": (
        TEXT,
        {
            "silu": Cost(
                Ops(exp=60, add=60, div=60, mul=60),
                Ops(mul=180, add=120),
                Ops(),
                Ops(exp=60, add=60, div=60, mul=60),
            )
        },
    ),
    "squared ReLU": (
        TEXT,
        {"squared_relu": Cost(Ops(cmp=60, mul=60), Ops(mul=120), Ops(), Ops(cmp=60, mul=60))},
    ),
    "product": (TEXT, {"product": Cost(Ops(mul=60), Ops(mul=120), Ops(), Ops(mul=60))}),
    "add": (TEXT, {"add": Cost(Ops(add=60), Ops(), Ops(), Ops(add=60))}),
    "ReLU": (TEXT, {"relu": Cost(Ops(cmp=60), Ops(cmp=60), Ops(), Ops(cmp=60))}),
}


def test_every_sample_has_figures() -> None:
    assert BY_HAND.keys() == TEXT_SAMPLES.keys()


@pytest.mark.parametrize("name", TEXT_SAMPLES)
def test_shape_and_operations_by_hand(name: str) -> None:
    layer, inputs = TEXT_SAMPLES[name]
    assert (layer.shape(*inputs), dict(layer.costs(*inputs))) == BY_HAND[name]


def drawn(rng: random.Random, shape: Shape) -> Any:
    if not shape:
        return rng.gauss(0, 1)
    return [drawn(rng, shape[1:]) for _ in range(shape[0])]


def made(layer: Layer, inputs: tuple[Shape, ...]) -> Cost:
    """What loops over single numbers made of one example."""
    rng, tallies = random.Random(0), Tallies()
    tensors = {**layer.weights(*inputs), **layer.statistics(*inputs)}
    own = {name: drawn(rng, shape) for name, shape in tensors.items()}
    before = {name: drawn(rng, shape) for name, shape in layer.weights(*inputs).items()}
    reads = [drawn(rng, shape) for shape in inputs]
    if isinstance(layer, Embedding):
        reads = [[rng.randrange(layer.symbols) for _ in reads[0]]]
    _, backward = naive(layer, tallies, own, before, *reads)
    backward(drawn(rng, layer.shape(*inputs)))
    return tallies.cost


@pytest.mark.parametrize("name", TEXT_SAMPLES)
def test_as_many_operations_as_loops_make(name: str) -> None:
    layer, inputs = TEXT_SAMPLES[name]
    assert made(layer, inputs) == sum(layer.costs(*inputs).values(), Cost())


@pytest.mark.parametrize("rotary", [0.0, 100.0])
@pytest.mark.parametrize(("heads", "groups", "width"), [(1, 1, 2), (4, 2, 2), (6, 1, 4), (6, 3, 2)])
@pytest.mark.parametrize("positions", [1, 2, 3, 7])
def test_the_triangle_is_what_a_loop_over_pairs_makes(
    positions: int, heads: int, groups: int, width: int, rotary: float
) -> None:
    layer, narrow = Attention(heads, groups, rotary), (positions, groups * width)
    inputs = ((positions, heads * width), narrow, narrow)
    assert made(layer, inputs) == sum(layer.costs(*inputs).values(), Cost())
    counted, masked = layer.costs(*inputs)["attention"], layer.masked(*inputs)
    for found, more in (
        (counted.forward, masked.forward),
        (counted.input_grad, masked.input_grad),
        (counted.evaluate, masked.evaluate),
    ):
        assert (found.mac + more.mac) * (positions + 1) == found.mac * 2 * positions


@pytest.mark.parametrize(("positions", "symbols"), [(1, 2), (3, 5), (4, 1)])
def test_the_loss_is_what_a_loop_over_symbols_makes(positions: int, symbols: int) -> None:
    rng, tallies, evaluation = random.Random(1), Tallies(), Tally()
    for _ in range(positions):
        logits, right = drawn(rng, (symbols,)), rng.randrange(symbols)
        loss, _ = cross_entropy(tallies, logits, right)
        assert log_probability(evaluation, logits, right) == pytest.approx(-loss, abs=1e-12)
    expected = Cost(tallies.forward.ops, tallies.input_grad.ops, Ops(), evaluation.ops)
    assert NextSymbol().loss((positions, symbols)) == expected


def test_the_loss_by_hand() -> None:
    assert NextSymbol().loss((3, 10)) == Cost(
        Ops(cmp=27, add=63, exp=33, div=30), Ops(add=30, mul=30), Ops(), Ops(cmp=27, add=60, exp=33)
    )


def test_weights() -> None:
    assert Embedding(7, 12).weights((5,)) == {"weight": (7, 12)}
    assert Positions().weights(TEXT) == {"weight": (5, 12)}
    assert Linear(8).weights(TEXT) == {"weight": (8, 12)}
    assert Linear(8, bias=True).weights(TEXT) == {"weight": (8, 12), "bias": (8,)}
    assert RMSNorm().weights(TEXT) == {"weight": (12,)}
    assert LayerNorm().weights(TEXT) == {"weight": (12,), "bias": (12,)}
    experts = Experts(3, 2, 8)
    assert experts.weights(TEXT) == {
        "router": (3, 12),
        "gate": (3, 8, 12),
        "up": (3, 8, 12),
        "down": (3, 12, 8),
    }
    assert "gate" not in Experts(3, 2, 8, gated=False).weights(TEXT)
    assert experts.statistics(TEXT) == {"balance": (3,)}
    for layer, inputs in TEXT_SAMPLES.values():
        if not isinstance(layer, (Embedding, Positions, Linear, RMSNorm, LayerNorm, Experts)):
            assert not layer.weights(*inputs)
            assert not layer.statistics(*inputs)


@pytest.mark.parametrize("name", TEXT_SAMPLES)
def test_a_tensor_has_a_name_that_an_attribute_can_have(name: str) -> None:
    """torch.compile writes it into a program."""
    layer, inputs = TEXT_SAMPLES[name]
    for tensor in {**layer.weights(*inputs), **layer.statistics(*inputs)}:
        assert tensor.isidentifier()
        assert not iskeyword(tensor)


def test_what_is_the_same_is_written_in_one_way() -> None:
    assert (
        repr(Attention(4, 2, 10000))
        == repr(Attention(4, 2))
        == "Attention(heads=4, groups=2, rotary=10000.0)"
    )


SIZE = "not a whole number from 1 to 2^31 − 1"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Embedding(0, 4), f"Embedding: symbols is 0, {SIZE}"),
        (lambda: Embedding(4, 2**31), f"Embedding: features is 2147483648, {SIZE}"),
        (lambda: Embedding(7, 4).shape(TEXT), "Embedding: reads (positions,), not (5, 12)"),
        (lambda: Linear(0), f"Linear: features is 0, {SIZE}"),
        (lambda: Linear(8).shape((12,)), "Linear: reads (positions, features), not (12,)"),
        (lambda: Positions().shape((4, 6, 5)), "Positions: reads (positions, features), not (4, 6, 5)"),
        (lambda: RMSNorm(0.0), "RMSNorm: epsilon 0.0 is not between 0 and 1"),
        (lambda: LayerNorm(nan), "LayerNorm: epsilon nan is not between 0 and 1"),
        (lambda: LayerNorm(1), "LayerNorm: epsilon 1 is not between 0 and 1"),
        (lambda: LayerNorm().shape((12,)), "LayerNorm: reads (positions, features), not (12,)"),
        (lambda: Attention(0), f"Attention: heads is 0, {SIZE}"),
        (lambda: Attention(4, 3), "Attention: 4 heads in 3 groups"),
        (lambda: Attention(2, rotary=0.5), "Attention: rotary 0.5 is neither 0 nor a base from 1 up"),
        (lambda: Attention(2, rotary=inf), "Attention: rotary inf is neither 0 nor a base from 1 up"),
        (lambda: Attention(2, rotary=True), "Attention: rotary True is neither 0 nor a base from 1 up"),
        (
            lambda: Attention(3).shape(TEXT),
            "Attention: needs q, k, v of (positions, features), reads [(5, 12)]",
        ),
        (
            lambda: Attention(5).shape(TEXT, TEXT, TEXT),
            "Attention: 12 features of queries in 5 heads",
        ),
        (
            lambda: Attention(3, 3).shape(TEXT, TEXT, (5, 8)),
            "Attention: 3 groups need k and v of (5, 12), not (5, 12) and (5, 8)",
        ),
        (
            lambda: Attention(3, 3).shape(TEXT, (4, 12), (4, 12)),
            "Attention: 3 groups need k and v of (5, 12), not (4, 12) and (4, 12)",
        ),
        (
            lambda: Attention(4, 4).shape(TEXT, TEXT, TEXT),
            "Attention: rotary positions turn pairs, and a head has 3 features",
        ),
        (lambda: Experts(4, 1, 8), "Experts: 1 chosen of 4; 2 or more, and no more than all"),
        (lambda: Experts(4, 5, 8), "Experts: 5 chosen of 4; 2 or more, and no more than all"),
        (lambda: Experts(4, 2, 8).shape((5,)), "Experts: reads (positions, features), not (5,)"),
        (
            lambda: Product().shape(TEXT, (5, 8)),
            "Product: needs two inputs of one shape, reads [(5, 12), (5, 8)]",
        ),
        (lambda: Product().shape(TEXT), "Product: needs two inputs of one shape, reads [(5, 12)]"),
        (lambda: Conv2d(8).shape(TEXT), "Conv2d: reads (channels, height, width), not (5, 12)"),
        (lambda: BatchNorm().shape(TEXT), "BatchNorm: reads (channels, height, width), not (5, 12)"),
        (lambda: Dense(8).shape(TEXT), "Dense: reads (features,), not (5, 12)"),
        (lambda: MaxPool(1, 1).shape(TEXT), "MaxPool: reads (channels, height, width), not (5, 12)"),
        (lambda: GlobalPool().shape(TEXT), "GlobalPool: reads (channels, height, width), not (5, 12)"),
        (
            lambda: Gate().shape(TEXT, (5,)),
            "Gate: needs (channels, height, width), (channels,); reads [(5, 12), (5,)]",
        ),
    ],
)
def test_refused_in_one_line(build: Any, message: str) -> None:
    with pytest.raises(ShapeError) as raised:
        build()
    assert str(raised.value) == message


def test_layers_of_any_shape_read_sequences() -> None:
    assert {layer.shape(TEXT) for layer in (ReLU(), GELU(), Dropout(0.5))} == {TEXT}
    assert Add().shape(TEXT, TEXT, TEXT) == TEXT


EMBEDDED = Node("embedding", Embedding(7, 12), (INPUT,))
GOOD = (EMBEDDED, Node("symbols", Linear(7), ("embedding",)))


@pytest.mark.parametrize(
    ("input", "nodes", "head", "message"),
    [
        ((5,), GOOD, Classes(), "the output has the shape (5, 7), not (classes,)"),
        (
            (5,),
            (*GOOD, Node("a", Dense(4), ("b",))),
            NextSymbol(),
            "a reads 'b', which does not come before it",
        ),
        (
            (3, 4, 4),
            (Node("pool", GlobalPool(), (INPUT,)),),
            NextSymbol(),
            "the input is (3, 4, 4); the next symbol is asked of (positions,)",
        ),
        (
            (5,),
            (Node("relu", ReLU(), (INPUT,)),),
            NextSymbol(),
            "the output has the shape (5,), not (5, symbols)",
        ),
        (
            (5,),
            (Node("wide", Dense(5), (INPUT,)), Node("embedding", Embedding(7, 12), ("wide",))),
            NextSymbol(),
            "wide: Dense: reads numbers; embed the symbols of 'input'",
        ),
        (
            (4, 3, 3),
            (Node("pool", GlobalPool(), (INPUT,)), Node("embedding", Embedding(7, 12), ("pool",))),
            Classes(),
            "the output has the shape (4, 12), not (classes,)",
        ),
        (
            (5,),
            (
                EMBEDDED,
                Node("relu", ReLU(), (INPUT,)),
                Node("again", Embedding(7, 12), ("relu",)),
                Node("sum", Add(), ("embedding", "again")),
            ),
            NextSymbol(),
            "relu: ReLU: reads numbers; embed the symbols of 'input'",
        ),
    ],
)
def test_a_graph_is_refused_in_one_line(
    input: Shape, nodes: tuple[Node, ...], head: Any, message: str
) -> None:
    with pytest.raises(ShapeError) as raised:
        Graph(input, nodes, head=head)
    assert str(raised.value) == message


def test_a_window_of_one_position_is_a_graph() -> None:
    graph = Graph((1,), GOOD, head=NextSymbol())
    assert graph.classes == 7
    assert graph.num_activations == prod((1, 12)) + 7
