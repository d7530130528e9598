"""Layers and graphs for the tests: one sample of every layer, a grouped network, and random graphs of images
and of text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from nas.graph import INPUT, Graph, Node
from nas.head import Classes, Head, NextSymbol
from nas.layers import (
    GELU,
    AdaptiveAveragePool,
    Add,
    Attention,
    AveragePool,
    BatchNorm,
    ChannelNorm,
    ChannelShuffle,
    Concat,
    Conv2d,
    Dense,
    DepthwiseConv2d,
    Dropout,
    Embedding,
    Experts,
    Flatten,
    Gate,
    GlobalPool,
    GroupNorm,
    HardSigmoid,
    HardSwish,
    Layer,
    LayerNorm,
    Linear,
    MaxPool,
    Positions,
    Product,
    ReLU,
    ReLU6,
    RMSNorm,
    Shape,
    ShapeError,
    SiLU,
    SquaredReLU,
    Upsample,
)

IMAGE = (4, 6, 5)
LAYERS = frozenset(kind for kind in Layer.__subclasses__() if kind.__module__.startswith("nas.layers."))
"""Every layer of this program: its class is its registration."""

SAMPLES: dict[str, tuple[Layer, tuple[Shape, ...]]] = {
    "conv": (Conv2d(8, 5), (IMAGE,)),
    "conv, stride": (Conv2d(8, 3, 2), (IMAGE,)),
    "conv, groups": (Conv2d(8, 3, 2, groups=2), (IMAGE,)),
    "conv, depthwise": (DepthwiseConv2d(3, 2), (IMAGE,)),
    "conv, bias": (Conv2d(8, 3, bias=True), (IMAGE,)),
    "conv, unpadded": (Conv2d(8, 3, groups=2, padding=0), (IMAGE,)),
    "conv, rectangular": (Conv2d(8, (1, 3), (2, 1), padding=(0, 2)), (IMAGE,)),
    "conv, even": (Conv2d(8, 2, 2, padding=0), (IMAGE,)),
    "conv, dilated": (Conv2d(8, 3, 2, groups=2, dilation=2), (IMAGE,)),
    "conv, depthwise, dilated": (DepthwiseConv2d(3, padding=1, dilation=(2, 1)), (IMAGE,)),
    "conv, depthwise, bias": (DepthwiseConv2d(3, 2, padding=0, bias=True), (IMAGE,)),
    "dense": (Dense(10), ((16,),)),
    "dense, no bias": (Dense(10, bias=False), ((16,),)),
    "batch norm": (BatchNorm(), (IMAGE,)),
    "group norm": (GroupNorm(2, 0.01), (IMAGE,)),
    "channel norm": (ChannelNorm(0.01), (IMAGE,)),
    "ReLU": (ReLU(), (IMAGE,)),
    "ReLU6": (ReLU6(), (IMAGE,)),
    "hard-swish": (HardSwish(), (IMAGE,)),
    "hard-sigmoid": (HardSigmoid(), (IMAGE,)),
    "max-pool": (MaxPool(3, 2), (IMAGE,)),
    "max-pool, even": (MaxPool(2, 2), (IMAGE,)),
    "max-pool, unpadded": (MaxPool(3, 2, padding=0), (IMAGE,)),
    "max-pool, ceil": (MaxPool(3, 2, padding=0, ceil_mode=True), (IMAGE,)),
    "average pool": (AveragePool(3, 2), (IMAGE,)),
    "average pool, apart": (AveragePool(2, 2), (IMAGE,)),
    "average pool, rectangular": (AveragePool((2, 3), (2, 1), padding=(1, 0)), (IMAGE,)),
    "adaptive pool": (AdaptiveAveragePool((4, 2)), (IMAGE,)),
    "adaptive pool, apart": (AdaptiveAveragePool((3, 5)), (IMAGE,)),
    "adaptive pool, larger": (AdaptiveAveragePool(7), (IMAGE,)),
    "global pool": (GlobalPool(), (IMAGE,)),
    "add": (Add(), (IMAGE, IMAGE, IMAGE)),
    "concat": (Concat(), (IMAGE, (3, 6, 5))),
    "concat of vectors": (Concat(), ((4,), (3,))),
    "flatten": (Flatten(), (IMAGE,)),
    "shuffle": (ChannelShuffle(2), ((6, 6, 5),)),
    "upsample": (Upsample((2, 3)), (IMAGE,)),
    "dropout": (Dropout(0.25), (IMAGE,)),
    "gate": (Gate(), (IMAGE, (4,))),
}
KEEP_SHAPE = [
    layer for layer, reads in SAMPLES.values() if reads == (IMAGE,) and layer.shape(*reads) == IMAGE
]
"""The samples that put out the shape of the one image that they read."""


@dataclass
class Draft:
    """Nodes one after the other; each reads the one before unless told otherwise."""

    nodes: list[Node] = field(default_factory=list)

    def put(self, name: str, layer: Layer, *inputs: str) -> str:
        above = self.nodes[-1].name if self.nodes else INPUT
        self.nodes.append(Node(name, layer, inputs or (above,)))
        return name

    def graph(self, *input: int, head: Head = Classes()) -> Graph:  # noqa: B008 - it is frozen
        return Graph(input, tuple(self.nodes), head=head)


@dataclass
class Drawn:
    """Nodes that are drawn, each with the shape that it puts out."""

    shapes: dict[str, Shape]
    nodes: list[Node] = field(default_factory=list)

    def put(self, layer: Layer, *inputs: str) -> str:
        name = f"part{len(self.nodes) % 3}.{type(layer).__name__}.{len(self.nodes)}"
        self.shapes[name] = layer.shape(*[self.shapes[read] for read in inputs])
        self.nodes.append(Node(name, layer, inputs))
        return name


def wired(rows: Mapping[str, Iterable[Any]], *input: int, head: Head = Classes()) -> Graph:  # noqa: B008
    """Each row has a layer and what it reads: the one before unless told otherwise."""
    draft = Draft()
    for name, (layer, *reads) in rows.items():
        draft.put(name, layer, *reads)
    return draft.graph(*input, head=head)


def chain(*layers: Layer, input: Shape = IMAGE, head: Head = Classes()) -> Graph:  # noqa: B008
    """Layers one after the other, named by type and place."""
    rows = {f"{type(layer).__name__}.{place}": [layer] for place, layer in enumerate(layers)}
    return wired(rows, *input, head=head)


def grouped(classes: int = 20, side: int = 24) -> Graph:
    """A small ResNeXt (Xie et al., CVPR 2017): two bottlenecks whose 3×3 convolution has 8 groups, with
    squeeze-excite in the second, after a stem of as many groups as channels. A `DepthwiseConv2d` reads that
    stem, and ends the second."""
    draft = Draft()

    def put(layer: Layer, *inputs: str) -> str:
        return draft.put(f"node{len(draft.nodes)}.{type(layer).__name__}", layer, *inputs)

    def conv(entry: str, channels: int, kernel: int, stride: int = 1, groups: int = 1) -> str:
        return put(BatchNorm(), put(Conv2d(channels, kernel, stride, groups), entry))

    def bottleneck(entry: str, width: int, stride: int) -> str:
        first = put(ReLU(), conv(entry, width, 1))
        second = put(ReLU(), conv(first, width, 3, stride, groups=8))
        return conv(second, 2 * width, 1)

    stem = put(DepthwiseConv2d(), put(ReLU(), conv(conv(INPUT, 16, 3), 16, 3, 1, groups=16)))
    one = put(ReLU(), put(Add(), bottleneck(stem, 32, 1), conv(stem, 64, 1)))
    branch = put(DepthwiseConv2d(5), bottleneck(one, 64, 2))
    z = put(Dense(128), put(ReLU(), put(Dense(32), put(GlobalPool(), branch))))
    two = put(ReLU(), put(Add(), put(Gate(), branch, z), conv(one, 128, 1, 2)))
    put(Dense(classes), put(GlobalPool(), two))
    return draft.graph(3, side, side)


@st.composite
def graphs(draw: st.DrawFn, groups: bool = True) -> Graph:
    """Any graph of up to a dozen layers with every kind of layer, fork and join."""
    sides = st.integers(3, 8)
    drawn = Drawn({INPUT: (draw(st.integers(1, 4)), draw(sides), draw(sides))})
    put, shapes, nodes = drawn.put, drawn.shapes, drawn.nodes
    simple = st.one_of(
        st.builds(
            Conv2d,
            st.integers(1, 4).map(lambda number: 2 * number),
            st.sampled_from([1, 3, 5]),
            st.sampled_from([1, 2]),
            st.sampled_from([1, 2] if groups else [1]),
        ),
        *([st.builds(DepthwiseConv2d, st.sampled_from([1, 3]), st.sampled_from([1, 2]))] if groups else []),
        st.builds(
            lambda channels, kernel, stride, bias, dilation: Conv2d(
                channels, kernel[0], stride, padding=kernel[1], bias=bias, dilation=dilation
            ),
            st.integers(1, 4).map(lambda number: 2 * number),
            st.sampled_from([((1, 3), (0, 1)), ((3, 1), 0), (3, 0), (2, 1), (4, (2, 0)), (1, None)]),
            st.sampled_from([1, 2, (1, 2), 9]),
            st.booleans(),
            st.sampled_from([1, 1, 2, (1, 2)]),
        ),
        st.just(BatchNorm()),
        st.builds(GroupNorm, st.sampled_from([1, 2]), st.just(0.01)),
        st.sampled_from(KEEP_SHAPE),
        st.builds(MaxPool, st.integers(1, 3), st.integers(1, 2)),
        st.builds(AveragePool, st.integers(1, 3), st.integers(1, 2)),
        st.builds(
            lambda kind, kernel, ceil: kind(kernel, (2, 1), padding=(0, 1), ceil_mode=ceil),
            st.sampled_from([MaxPool, AveragePool]),
            st.sampled_from([3, (1, 2)]),
            st.booleans(),
        ),
        st.builds(AdaptiveAveragePool, st.tuples(st.integers(1, 5), st.integers(1, 5))),
        st.just(Upsample((1, 2))),
        *([st.just(ChannelShuffle(2))] if groups else []),
    )
    for _ in range(draw(st.integers(1, 9))):
        images = [name for name, shape in shapes.items() if len(shape) == 3]
        name = draw(st.sampled_from(images) | st.just(images[-1]))
        step = draw(st.sampled_from(["layer"] * 6 + ["add", "concat", "gate"]))
        same_area = [other for other, shape in shapes.items() if shape[1:] == shapes[name][1:]]
        same_shape = [other for other in same_area if shapes[other] == shapes[name]]
        if step == "add":
            branch = put(draw(st.sampled_from([Conv2d(shapes[name][0], 1), ReLU()])), name)
            put(Add(), branch, *draw(st.lists(st.sampled_from(same_shape), min_size=1, max_size=2)))
        elif step == "concat":
            put(Concat(), name, draw(st.sampled_from(same_area)))
        elif step == "gate":
            put(Gate(), name, put(Dense(shapes[name][0]), put(GlobalPool(), name)))
        else:
            try:
                put(draw(simple), name)
            except ShapeError:
                continue  # an odd number of channels in two groups, a window larger than the image
    unread = [name for name in shapes if all(name not in node.inputs for node in nodes)]
    ends = [put(draw(st.sampled_from([GlobalPool(), Flatten()])), name) for name in unread]
    put(Dense(draw(st.integers(1, 5))), put(Concat(), *ends) if len(ends) > 1 else ends[0])
    return Graph(shapes[INPUT], tuple(nodes))


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
