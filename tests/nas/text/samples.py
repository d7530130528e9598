"""Layers of sequences for the tests: samples of every one, and random networks of text."""

from __future__ import annotations

from hypothesis import strategies as st

from nas.graph import INPUT, Graph
from nas.head import NextSymbol
from nas.layers import (
    GELU,
    Add,
    Attention,
    Dropout,
    Embedding,
    Experts,
    Layer,
    LayerNorm,
    Linear,
    Positions,
    Product,
    ReLU,
    RMSNorm,
    Shape,
    SiLU,
    SquaredReLU,
)
from tests.nas.graphs import Drawn

TEXT = (5, 12)

TEXT_SAMPLES: dict[str, tuple[Layer, tuple[Shape, ...]]] = {
    "embedding": (Embedding(7, 12), ((5,),)),
    "positions": (Positions(), (TEXT,)),
    "linear": (Linear(8), (TEXT,)),
    "linear, bias": (Linear(8, bias=True), (TEXT,)),
    "RMSNorm": (RMSNorm(), (TEXT,)),
    "LayerNorm": (LayerNorm(0.01), (TEXT,)),
    "attention": (Attention(3, 3, rotary=0.0), (TEXT, TEXT, TEXT)),
    "attention, grouped": (Attention(6, 2, rotary=0.0), (TEXT, (5, 4), (5, 4))),
    "attention, rotary": (Attention(3, 1), (TEXT, (5, 4), (5, 4))),
    "attention, windowed": (Attention(3, 1, window=2), (TEXT, (5, 4), (5, 4))),
    "attention, head norm": (Attention(3, 1, head_norm=True), (TEXT, (5, 4), (5, 4))),
    "experts": (Experts(5, 2, 6), (TEXT,)),
    "experts, plain": (Experts(4, 3, 8, gated=False), (TEXT,)),
    "GELU": (GELU(), (TEXT,)),
    "SiLU": (SiLU(), (TEXT,)),
    "squared ReLU": (SquaredReLU(), (TEXT,)),
    "product": (Product(), (TEXT, TEXT)),
    "add of text": (Add(), (TEXT, TEXT)),
    "ReLU of text": (ReLU(), (TEXT,)),
}
WEIGHTLESS = [
    layer for layer, reads in TEXT_SAMPLES.values() if reads == (TEXT,) and not layer.weights(*reads)
]
"""The samples without weights that read one sequence."""


@st.composite
def texts(draw: st.DrawFn, dropout: bool = True) -> Graph:
    """Any network of up to a dozen layers of sequences, with forks and joins."""
    positions = draw(st.integers(1, 9))
    drawn = Drawn({INPUT: (positions,)})
    put, shapes, nodes = drawn.put, drawn.shapes, drawn.nodes

    def attend(name: str) -> str:
        groups, more = draw(st.integers(1, 3)), draw(st.integers(1, 3))
        width = draw(st.sampled_from([1, 2, 4]))
        layer = Attention(
            groups * more,
            groups,
            draw(st.sampled_from([0.0, 100.0])) if width > 1 else 0.0,
            window=draw(st.sampled_from([0, 1, 3])),
            head_norm=draw(st.booleans()),
        )
        parts = [put(Linear(heads * width), name) for heads in (groups * more, groups, groups)]
        return put(layer, *parts)

    simple = st.one_of(
        st.builds(Linear, st.integers(1, 6).map(lambda number: 2 * number), st.booleans()),
        st.builds(Experts, st.integers(2, 4), st.just(2), st.integers(1, 5), st.booleans()),
        st.sampled_from([*WEIGHTLESS, Positions(), RMSNorm(1e-3), LayerNorm(1e-3)]),
        *([st.just(Dropout(0.5))] if dropout else []),
    )
    put(Embedding(draw(st.integers(2, 9)), draw(st.integers(1, 6))), INPUT)
    for _ in range(draw(st.integers(1, 9))):
        name = draw(st.sampled_from([node.name for node in nodes]) | st.just(nodes[-1].name))
        same = [node.name for node in nodes if shapes[node.name] == shapes[name]]
        step = draw(st.sampled_from(["layer", "layer", "layer", "add", "product", "attend"]))
        if step == "attend":
            attend(name)
        elif step == "layer":
            put(draw(simple), name)
        else:
            branch = put(draw(st.sampled_from([Linear(shapes[name][1]), GELU()])), name)
            put(Add() if step == "add" else Product(), branch, draw(st.sampled_from(same)))
    unread = [node.name for node in nodes if all(node.name not in other.inputs for other in nodes)]
    ends = [put(Linear(5), name) for name in unread]
    if len(ends) > 1:
        put(Add(), *ends)
    return Graph((positions,), tuple(nodes), head=NextSymbol())
