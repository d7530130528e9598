"""Every layer's shape, weights and operations, against figures worked out by hand: one file for one table."""

from __future__ import annotations

from itertools import product
from keyword import iskeyword
from math import inf, nan
from typing import Any

import pytest

from nas import layers
from nas.head import Classes, NextSymbol
from nas.layers import Attention, Layer, MissingReading, Shape, Windows
from nas.ops import Cost, Ops
from tests.nas.graphs import IMAGE, LAYERS, SAMPLES
from tests.nas.text.samples import TEXT, TEXT_SAMPLES
from tests.tables import ComesTo

ALL = {**SAMPLES, **TEXT_SAMPLES}
NONE = Ops()


def alike(row: str, operations: Ops) -> dict[str, Cost]:
    """Forward, both gradients and validation cost the same."""
    return {row: Cost(operations, operations, operations, operations)}


def of(row: str, forward: Ops, input_grad: Ops = NONE, weight_grad: Ops = NONE) -> dict[str, Cost]:
    """Validation makes the forward pass."""
    return {row: Cost(forward, input_grad, weight_grad, forward)}


def sums(row: str, number: int) -> dict[str, Cost]:
    return of(row, Ops(add=number), weight_grad=Ops(add=number))


def each(**numbers: int) -> Ops:
    """Operations of 5 positions, from those of one."""
    return Ops(**numbers) * 5


def attended(pairs: int, rows: int, width: int, shared: int = 0) -> dict[str, Cost]:
    """For each pair two products of a head's width forward and four backward; `shared`: sums of the gradients
    of keys and values that several heads read."""
    softmax = Ops(mul=pairs, cmp=pairs - rows, add=2 * pairs - rows, exp=pairs, div=pairs)
    backward = Ops(mac=4 * pairs * width, mul=3 * pairs, add=2 * pairs - rows + shared)
    return of("attention", softmax + Ops(mac=2 * pairs * width), backward)


TURNED = of("rotary", Ops(mul=160, add=80), Ops(mul=160, add=80))
NORMED = of(
    "head_norm", Ops(mul=240, add=80, div=40, sqrt=20), Ops(mul=320, add=140, div=20), Ops(mul=80, add=80)
)

# (4, 6, 5) has 120 elements on areas of 30; strides of 2 leave (3, 3), windows of 2 leave (3, 2).
BY_HAND: dict[str, tuple[Shape, dict[str, Cost]]] = {
    # 5·5 taps of 4 channels for each of 8·30 elements
    "conv": ((8, 6, 5), alike("conv", Ops(mac=24_000))),
    # 3·3 taps of 4 channels for each of 8·9
    "conv, stride": ((8, 3, 3), alike("conv", Ops(mac=2_592))),
    # 3·3 taps of 2 channels for each of 8·9
    "conv, groups": ((8, 3, 3), alike("conv", Ops(mac=1_296))),
    # 3·3 taps of 1 channel for each of 4·9
    "conv, depthwise": ((4, 3, 3), alike("conv", Ops(mac=324))),
    # 3·3 taps of 4 channels for each of 8·30, and a sum for each
    "conv, bias": ((8, 6, 5), {**alike("conv", Ops(mac=8_640)), **sums("bias", 240)}),
    # 3·3 taps of 2 channels for each of 8·12
    "conv, unpadded": ((8, 4, 3), alike("conv", Ops(mac=1_728))),
    # 1·3 taps of 4 channels for each of 8·21
    "conv, rectangular": ((8, 3, 7), alike("conv", Ops(mac=2_016))),
    # 2·2 taps of 4 channels for each of 8·6
    "conv, even": ((8, 3, 2), alike("conv", Ops(mac=768))),
    # 3·3 taps of 2 channels for each of 8·9: they reach over 5 pixels, with a padding of 2
    "conv, dilated": ((8, 3, 3), alike("conv", Ops(mac=1_296))),
    # 3·3 taps of 1 channel for each of 4·20: they reach over (5, 3) pixels
    "conv, depthwise, dilated": ((4, 4, 5), alike("conv", Ops(mac=720))),
    # 3·3 taps of 1 channel for each of 4·4
    "conv, depthwise, bias": ((4, 2, 2), {**alike("conv", Ops(mac=144)), **sums("bias", 16)}),
    "dense": ((10,), {**alike("dense", Ops(mac=160)), **sums("bias", 10)}),
    "dense, no bias": ((10,), alike("dense", Ops(mac=160))),
    "batch norm": (
        IMAGE,
        {
            "bn": Cost(
                Ops(add=600, mul=360), Ops(add=360, mul=360), Ops(add=240, mul=120), Ops(add=240, mul=240)
            )
        },
    ),
    # 2 groups of 60 elements, as 2 positions of 60 features: "LayerNorm"
    "group norm": (
        IMAGE,
        of(
            "group_norm",
            Ops(mul=360, add=478, div=6, sqrt=2),
            Ops(mul=480, add=476, div=4),
            Ops(mul=120, add=240),
        ),
    ),
    # 30 pixels of 4 channels, as 30 positions of 4 features
    "channel norm": (
        IMAGE,
        of(
            "channel_norm",
            Ops(mul=360, add=450, div=90, sqrt=30),
            Ops(mul=480, add=420, div=60),
            Ops(mul=120, add=240),
        ),
    ),
    "ReLU": (IMAGE, of("relu", Ops(cmp=120), Ops(cmp=120))),
    # with 0 and with 6
    "ReLU6": (IMAGE, of("relu6", Ops(cmp=240), Ops(cmp=240))),
    # + 3, with 0 and with 6, by 6, times x; dy·(x/3 + 1/2) between −3 and 3
    "hard-swish": (IMAGE, of("hard_swish", Ops(add=120, cmp=240, mul=240), Ops(add=120, cmp=240, mul=240))),
    "hard-sigmoid": (IMAGE, of("hard_sigmoid", Ops(add=120, cmp=240, mul=120), Ops(cmp=240, mul=120))),
    # 8 comparisons for each of 4·9
    "max-pool": ((4, 3, 3), of("maxpool", Ops(cmp=288), Ops(add=36))),
    # 3 comparisons for each of 4·6
    "max-pool, even": ((4, 3, 2), of("maxpool", Ops(cmp=72), Ops(add=24))),
    # 8 comparisons for each of 4·4
    "max-pool, unpadded": ((4, 2, 2), of("maxpool", Ops(cmp=128), Ops(add=16))),
    # 8 comparisons for each of 4·6
    "max-pool, ceil": ((4, 3, 2), of("maxpool", Ops(cmp=192), Ops(add=24))),
    # windows overlap: 9 gradients gathered for each of 36
    "average pool": ((4, 3, 3), of("avgpool", Ops(add=288, div=36), Ops(mul=120, add=324))),
    "average pool, apart": ((4, 3, 2), of("avgpool", Ops(add=72, div=24), Ops(mul=120))),
    # windows of 2·3 overlap along the width: 6 gradients gathered for each of 4·12
    "average pool, rectangular": ((4, 4, 3), of("avgpool", Ops(add=240, div=48), Ops(mul=120, add=288))),
    # down 0-2 1-3 3-5 4-6, which are 8; right 0-3 2-5, which are 6; 4·8·6 taps in 4·8 windows
    "adaptive pool": ((4, 4, 2), of("avgpool", Ops(add=160, div=32), Ops(mul=120, add=192))),
    # down 0-2 2-4 4-6; right each by itself
    "adaptive pool, apart": ((4, 3, 5), of("avgpool", Ops(add=60, div=60), Ops(mul=120))),
    # down 0-1 0-2 1-3 2-4 3-5 4-6 5-6, which are 12; right 0-1 0-2 1-3 2-3 2-4 3-5 4-5, which are 11
    "adaptive pool, larger": ((4, 7, 7), of("avgpool", Ops(add=332, div=196), Ops(mul=120, add=528))),
    # 29 sums for each of 4 channels
    "global pool": ((4,), of("avgpool", Ops(add=116, div=4), Ops(mul=120))),
    "add": (IMAGE, of("add", Ops(add=240), Ops())),
    "concat": ((7, 6, 5), {"concat": Cost()}),
    "concat of vectors": ((7,), {"concat": Cost()}),
    "flatten": ((120,), {"flatten": Cost()}),
    "shuffle": ((6, 6, 5), {"shuffle": Cost()}),
    # 6 copies of each of 120: 5 sums of gradients
    "upsample": ((4, 12, 15), {"upsample": Cost(input_grad=Ops(add=600))}),
    "dropout": (IMAGE, {"dropout": Cost(Ops(mul=120), Ops(mul=120))}),
    # dx: mul 2·120 + 3·4; add 29·4 + 4
    "gate": (IMAGE, of("gate", Ops(exp=4, add=4, div=4, mul=124), Ops(mul=252, add=120))),
    # (5, 12) has 60 elements; of 5 positions a head has 15 pairs.
    "embedding": (TEXT, {"embedding": Cost(weight_grad=Ops(add=60))}),
    "positions": (TEXT, sums("positions", 60)),
    "linear": ((5, 8), alike("linear", Ops(mac=480))),
    "linear, bias": ((5, 8), {**alike("linear", Ops(mac=480)), **sums("bias", 40)}),
    "RMSNorm": (
        TEXT,
        of(
            "rms_norm", each(mul=36, add=12, div=2, sqrt=1), each(mul=48, add=23, div=1), each(mul=12, add=12)
        ),
    ),
    "LayerNorm": (
        TEXT,
        of(
            "layer_norm",
            each(mul=36, add=47, div=3, sqrt=1),
            each(mul=48, add=46, div=2),
            each(mul=12, add=24),
        ),
    ),
    # 3 heads of 4 features: 45 pairs in 15 rows
    "attention": (TEXT, attended(45, 15, 4)),
    # 6 heads of 2 features: 90 pairs in 30 rows; 4 further heads, 2 · 4 · 5 · 2 sums
    "attention, grouped": (TEXT, attended(90, 30, 2, shared=80)),
    # 3 heads read one group: 2 · 2 · 5 · 4 sums; 80 elements are turned
    "attention, rotary": (TEXT, {**attended(45, 15, 4, shared=80), **TURNED}),
    # 1 + 2 + 2 + 2 + 2 pairs in each of 3 heads: 27 in 15 rows; the rest as before
    "attention, windowed": (TEXT, {**attended(27, 15, 4, shared=80), **TURNED}),
    # 4 heads at 5 positions are 20 rows of 4 features: "RMSNorm"
    "attention, head norm": (TEXT, {**attended(45, 15, 4, shared=80), **TURNED, **NORMED}),
    # Router of 60: 5 + 3 add, 4 + 3 cmp, 2 exp, 2 div; 4 mul, 3 add. Experts of 3 · 6 · 12: 24 mul, 12 add;
    # 48 mul, 22 + 48 add; SiLU and product of 12: 12 exp, 12 add, 12 div, 24 mul; 60 mul, 24 add.
    "experts": (
        TEXT,
        {
            **of(
                "router", each(mac=60, add=8, cmp=7, exp=2, div=2), each(mac=60, mul=4, add=3), each(mac=60)
            ),
            **of(
                "experts",
                each(mac=432, mul=48, add=24, exp=12, div=12),
                each(mac=432, mul=108, add=94),
                each(mac=432),
            ),
        },
    ),
    # Router of 48: 4 + 5 add, 3 + 2 + 1 cmp, 3 exp, 3 div; 6 mul, 5 add. Experts of 2 · 8 · 12: 36 mul, 24
    # add; 72 mul, 33 + 36 add; GELU of 24: 72 mul, 24 add, 24 exp; 120 mul, 24 add, 24 exp.
    "experts, plain": (
        TEXT,
        {
            **of(
                "router", each(mac=48, add=9, cmp=6, exp=3, div=3), each(mac=48, mul=6, add=5), each(mac=48)
            ),
            **of(
                "experts",
                each(mac=576, mul=108, add=48, exp=24),
                each(mac=576, mul=192, add=93, exp=24),
                each(mac=576),
            ),
        },
    ),
    "GELU": (TEXT, of("gelu", Ops(mul=180, add=60, exp=60), Ops(mul=300, add=60, exp=60))),
    "SiLU": (TEXT, of("silu", Ops(exp=60, add=60, div=60, mul=60), Ops(mul=180, add=120))),
    "squared ReLU": (TEXT, of("squared_relu", Ops(cmp=60, mul=60), Ops(mul=120))),
    "product": (TEXT, of("product", Ops(mul=60), Ops(mul=120))),
    "add of text": (TEXT, of("add", Ops(add=60))),
    "ReLU of text": (TEXT, of("relu", Ops(cmp=60), Ops(cmp=60))),
}


def test_every_layer_has_a_sample_and_figures_by_hand() -> None:
    assert {type(layer).__name__ for layer, _ in ALL.values()} == {kind.__name__ for kind in LAYERS}
    assert BY_HAND.keys() == ALL.keys()


@pytest.mark.parametrize("reading", ["shape", "costs", "footprint", "torch_line", "onnx"])
def test_every_layer_states_every_reading(reading: str) -> None:
    """Its module is held by test_modules, its starting values by test_weights. What is not stated is an error
    when it is asked for, and never a default."""
    nothing: Any = getattr(Layer, reading)
    assert [kind.__name__ for kind in LAYERS if getattr(kind, reading) is nothing] == []
    method = rf"^Layer does not state its .+; its class needs the method '{reading}'$"
    with pytest.raises(MissingReading, match=method):
        nothing(Layer(), 4)


@pytest.mark.parametrize("name", ALL)
def test_shape_and_operations_by_hand(name: str) -> None:
    layer, inputs = ALL[name]
    assert (layer.shape(*inputs), dict(layer.costs(*inputs))) == BY_HAND[name]


def test_losses_by_hand() -> None:
    forward, gradient = Ops(cmp=9, add=21, exp=11, div=10), Ops(add=10, mul=10)
    assert Classes().loss((10,)) == Cost(forward, gradient, Ops(), Ops(cmp=9))
    asked = Ops(cmp=27, add=60, exp=33)
    assert NextSymbol().loss((3, 10)) == Cost(forward * 3, gradient * 3, Ops(), asked)


@pytest.mark.parametrize(
    ("window", "rotary", "head_norm"), [(0, 100.0, False), (2, 0.0, True), (9, 0.0, False)]
)
@pytest.mark.parametrize(("heads", "groups", "width"), [(1, 1, 2), (4, 2, 2), (6, 1, 4)])
@pytest.mark.parametrize("positions", [1, 2, 7])
def test_attention_costs_what_its_pairs_do(
    positions: int, heads: int, groups: int, width: int, window: int, rotary: float, head_norm: bool
) -> None:
    """Pairs are counted one by one; a window as long as the text makes no difference."""
    layer = Attention(heads, groups, rotary, window=window, head_norm=head_norm)
    queries, keys = (positions, heads * width), (positions, groups * width)
    pairs = heads * sum(
        0 <= i - j < (window or positions) for i in range(positions) for j in range(positions)
    )
    rows, shared = heads * positions, 2 * (heads - groups) * positions * width
    costs = layer.costs(queries, keys, keys)
    counted = attended(pairs, rows, width, shared)["attention"]
    assert costs["attention"] == counted
    masked = layer.masked(queries, keys, keys)
    assert counted.forward.mac + masked.forward.mac == 2 * heads * positions**2 * width
    assert counted.input_grad.mac + masked.input_grad.mac == 4 * heads * positions**2 * width
    assert masked.evaluate == masked.forward
    assert costs.keys() == {"attention", *["rotary"] * bool(rotary), *["head_norm"] * head_norm}


def test_names_of_tensors_can_be_written_into_a_program() -> None:
    """As torch.compile does. Their shapes are those of torch's modules: test_modules."""
    for layer, inputs in ALL.values():
        for tensor in (*layer.weights(*inputs), *layer.statistics(*inputs)):
            assert tensor.isidentifier()
            assert not iskeyword(tensor)


def test_how_layers_are_written_and_refused(comes_to_what_was_read: ComesTo) -> None:
    """An architecture's key is made of the text of its layers, and journals hold keys."""
    for table in ("written_layers.txt", "refused_layers.txt"):
        comes_to_what_was_read(table, {**vars(layers), "IMAGE": IMAGE, "TEXT": TEXT, "nan": nan, "inf": inf})


def test_windows_see_what_they_see_one_by_one() -> None:
    """Kernels, strides, padding and sides that a page of paper holds."""
    sizes = product(range(1, 6), range(1, 7), range(1, 8), range(1, 4), (False, True))
    for kernel, stride, side, dilation, ceil in sizes:
        taps = range(0, kernel * dilation, dilation)
        for padding in range(taps[-1] + 1):
            windows = Windows(side, kernel, stride, padding, ceil, dilation)
            if windows.padded <= taps[-1]:
                continue
            starts = range(-padding, side + padding - taps[-1] + (stride - 1) * ceil, stride)
            starts = starts[:-1] if ceil and starts[-1] >= side else starts
            seen = [[0 <= start + tap < side for start in starts] for tap in taps]
            assert windows.num == len(starts)
            assert windows.taps_on_image == sum(map(sum, seen))
            that_see = sum(map(any, zip(*seen)))
            assert windows.least_that_see <= that_see
            assert dilation > side or windows.least_that_see == that_see
            assert windows.all_taps_see == all(map(any, seen)), windows
            pixels = {start + tap for start in starts for tap in taps} & set(range(side))
            assert dilation > 1 or windows.pixels_seen == len(pixels)


def test_windows_of_billions_are_not_visited_one_by_one() -> None:
    """Half of a kernel as long as the image lies on it at both ends, all of it in the middle: a mean of three
    quarters."""
    side = 2**31 - 1
    whole = Windows(side, side, 1, side // 2)
    assert whole.all_taps_see
    assert whole.taps_on_image == (3 * side**2 + 1) // 4
    assert Windows(7, side, 5, 3 * side - 7, dilation=3).taps_on_image < 7 * side
