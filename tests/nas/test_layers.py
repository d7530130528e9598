"""Every layer's shape, weights and operations, against figures worked out by hand."""

from __future__ import annotations

from itertools import product
from math import inf, nan

import pytest

from nas.layers import (
    AdaptiveAveragePool,
    Add,
    AveragePool,
    BatchNorm,
    Concat,
    Conv2d,
    Dense,
    DepthwiseConv2d,
    Dropout,
    Flatten,
    Gate,
    GlobalPool,
    MaxPool,
    ReLU,
    ShapeError,
    Windows,
    softmax_cross_entropy,
)
from nas.ops import Cost, Ops
from tests.nas.graphs import IMAGE, LAYERS, SAMPLES
from tests.nas.text.samples import TEXT_SAMPLES


def alike(row: str, operations: Ops) -> dict[str, Cost]:
    """Forward, both gradients and validation cost the same."""
    return {row: Cost(operations, operations, operations, operations)}


# (4, 6, 5) has 120 elements on areas of 30; strides of 2 leave (3, 3), windows of 2 leave (3, 2).
BY_HAND = {
    # 5·5 taps of 4 channels for each of 8·30 elements
    "conv": ((8, 6, 5), alike("conv", Ops(mac=24_000))),
    # 3·3 taps of 4 channels for each of 8·9
    "conv, stride": ((8, 3, 3), alike("conv", Ops(mac=2_592))),
    # 3·3 taps of 2 channels for each of 8·9
    "conv, groups": ((8, 3, 3), alike("conv", Ops(mac=1_296))),
    # 3·3 taps of 1 channel for each of 4·9
    "conv, depthwise": ((4, 3, 3), alike("conv", Ops(mac=324))),
    # 3·3 taps of 4 channels for each of 8·30, and a sum for each
    "conv, bias": (
        (8, 6, 5),
        {**alike("conv", Ops(mac=8_640)), "bias": Cost(Ops(add=240), Ops(), Ops(add=240), Ops(add=240))},
    ),
    # 3·3 taps of 2 channels for each of 8·12
    "conv, unpadded": ((8, 4, 3), alike("conv", Ops(mac=1_728))),
    # 1·3 taps of 4 channels for each of 8·21
    "conv, rectangular": ((8, 3, 7), alike("conv", Ops(mac=2_016))),
    # 2·2 taps of 4 channels for each of 8·6
    "conv, even": ((8, 3, 2), alike("conv", Ops(mac=768))),
    # 3·3 taps of 1 channel for each of 4·4
    "conv, depthwise, bias": (
        (4, 2, 2),
        {**alike("conv", Ops(mac=144)), "bias": Cost(Ops(add=16), Ops(), Ops(add=16), Ops(add=16))},
    ),
    "dense": (
        (10,),
        {**alike("dense", Ops(mac=160)), "bias": Cost(Ops(add=10), Ops(), Ops(add=10), Ops(add=10))},
    ),
    "dense, no bias": ((10,), alike("dense", Ops(mac=160))),
    "batch norm": (
        IMAGE,
        {
            "bn": Cost(
                Ops(add=600, mul=360), Ops(add=360, mul=360), Ops(add=240, mul=120), Ops(add=240, mul=240)
            )
        },
    ),
    "ReLU": (IMAGE, {"relu": Cost(Ops(cmp=120), Ops(cmp=120), Ops(), Ops(cmp=120))}),
    # with 0 and with 6
    "ReLU6": (IMAGE, {"relu6": Cost(Ops(cmp=240), Ops(cmp=240), Ops(), Ops(cmp=240))}),
    # 8 comparisons for each of 4·9
    "max-pool": ((4, 3, 3), {"maxpool": Cost(Ops(cmp=288), Ops(add=36), Ops(), Ops(cmp=288))}),
    # 3 comparisons for each of 4·6
    "max-pool, even": ((4, 3, 2), {"maxpool": Cost(Ops(cmp=72), Ops(add=24), Ops(), Ops(cmp=72))}),
    # 8 comparisons for each of 4·4
    "max-pool, unpadded": ((4, 2, 2), {"maxpool": Cost(Ops(cmp=128), Ops(add=16), Ops(), Ops(cmp=128))}),
    # 8 comparisons for each of 4·6
    "max-pool, ceil": ((4, 3, 2), {"maxpool": Cost(Ops(cmp=192), Ops(add=24), Ops(), Ops(cmp=192))}),
    # windows overlap: 9 gradients gathered for each of 36
    "average pool": (
        (4, 3, 3),
        {"avgpool": Cost(Ops(add=288, div=36), Ops(mul=120, add=324), Ops(), Ops(add=288, div=36))},
    ),
    "average pool, apart": (
        (4, 3, 2),
        {"avgpool": Cost(Ops(add=72, div=24), Ops(mul=120), Ops(), Ops(add=72, div=24))},
    ),
    # windows of 2·3 overlap along the width: 6 gradients gathered for each of 4·12
    "average pool, rectangular": (
        (4, 4, 3),
        {"avgpool": Cost(Ops(add=240, div=48), Ops(mul=120, add=288), Ops(), Ops(add=240, div=48))},
    ),
    # down 0-2 1-3 3-5 4-6, which are 8; right 0-3 2-5, which are 6; 4·8·6 taps in 4·8 windows
    "adaptive pool": (
        (4, 4, 2),
        {"avgpool": Cost(Ops(add=160, div=32), Ops(mul=120, add=192), Ops(), Ops(add=160, div=32))},
    ),
    # down 0-2 2-4 4-6; right each by itself
    "adaptive pool, apart": (
        (4, 3, 5),
        {"avgpool": Cost(Ops(add=60, div=60), Ops(mul=120), Ops(), Ops(add=60, div=60))},
    ),
    # down 0-1 0-2 1-3 2-4 3-5 4-6 5-6, which are 12; right 0-1 0-2 1-3 2-3 2-4 3-5 4-5, which are 11
    "adaptive pool, larger": (
        (4, 7, 7),
        {"avgpool": Cost(Ops(add=332, div=196), Ops(mul=120, add=528), Ops(), Ops(add=332, div=196))},
    ),
    # 29 sums for each of 4 channels
    "global pool": ((4,), {"avgpool": Cost(Ops(add=116, div=4), Ops(mul=120), Ops(), Ops(add=116, div=4))}),
    "add": (IMAGE, {"add": Cost(Ops(add=240), Ops(), Ops(), Ops(add=240))}),
    "concat": ((7, 6, 5), {"concat": Cost()}),
    "concat of vectors": ((7,), {"concat": Cost()}),
    "flatten": ((120,), {"flatten": Cost()}),
    "dropout": (IMAGE, {"dropout": Cost(Ops(mul=120), Ops(mul=120))}),
    # dx: mul 2·120 + 3·4; add 29·4 + 4
    "gate": (
        IMAGE,
        {
            "gate": Cost(
                Ops(exp=4, add=4, div=4, mul=124),
                Ops(mul=252, add=120),
                Ops(),
                Ops(exp=4, add=4, div=4, mul=124),
            )
        },
    ),
}


def test_every_layer_has_a_sample_and_figures_by_hand():
    assert {type(layer) for layer, _ in [*SAMPLES.values(), *TEXT_SAMPLES.values()]} == LAYERS
    assert BY_HAND.keys() == SAMPLES.keys()


@pytest.mark.parametrize("name", SAMPLES)
def test_shape_and_operations_by_hand(name):
    layer, inputs = SAMPLES[name]
    assert (layer.shape(*inputs), dict(layer.costs(*inputs))) == BY_HAND[name]


def test_loss_by_hand():
    assert softmax_cross_entropy(10) == Cost(
        Ops(cmp=9, add=21, exp=11, div=10), Ops(add=10, mul=10), Ops(), Ops(cmp=9)
    )


def test_weights_and_statistics():
    assert Conv2d(8, 3, 1, groups=2).weights(IMAGE) == {"weight": (8, 2, 3, 3)}
    assert Conv2d(8, (1, 3), bias=True).weights(IMAGE) == {"weight": (8, 4, 1, 3), "bias": (8,)}
    assert DepthwiseConv2d().weights(IMAGE) == {"weight": (4, 1, 3, 3)}
    assert Dense(10).weights((16,)) == {"weight": (10, 16), "bias": (10,)}
    assert Dense(10, bias=False).weights((16,)) == {"weight": (10, 16)}
    assert BatchNorm().weights(IMAGE) == {"weight": (4,), "bias": (4,)}
    assert BatchNorm().statistics(IMAGE) == {"running_mean": (4,), "running_var": (4,)}
    for layer, inputs in SAMPLES.values():
        if not isinstance(layer, (Conv2d, DepthwiseConv2d, Dense, BatchNorm)):
            assert not layer.weights(*inputs)
        if not isinstance(layer, BatchNorm):
            assert not layer.statistics(*inputs)


def test_what_is_the_same_is_written_in_one_way_and_as_it_always_was():
    """Of the text of its layers an architecture's key is made, and journals hold keys."""
    assert repr(Conv2d(8)) == "Conv2d(channels=8, kernel=3, stride=1, groups=1)"
    assert repr(DepthwiseConv2d(5, 2)) == "DepthwiseConv2d(kernel=5, stride=2)"
    assert repr(MaxPool(3, 2)) == "MaxPool(kernel=3, stride=2)"
    assert repr(Conv2d(8, (3, 3), (1, 1), padding=(1, 1))) == repr(Conv2d(8))
    assert repr(MaxPool(2, 2, padding=0)) == "MaxPool(kernel=2, stride=2)"
    assert repr(Conv2d(8, (1, 3), padding=0, bias=True)) == (
        "Conv2d(channels=8, kernel=(1, 3), stride=1, groups=1, padding=0, bias=True)"
    )


@pytest.mark.parametrize("size", [1, 2, 3, (6, 2)])
def test_adaptive_windows_of_one_size_cost_what_an_average_pool_does(size):
    shape = (4, 6, 6)
    side = AdaptiveAveragePool(size).shape(shape)[1:]
    kernel = tuple(6 // each for each in side)
    assert AdaptiveAveragePool(size).costs(shape) == AveragePool(kernel, kernel, padding=0).costs(shape)
    assert AdaptiveAveragePool(1).costs(IMAGE) == GlobalPool().costs(IMAGE)


def test_an_image_of_one_element_goes_through_every_window():
    for layer in (Conv2d(2, 7, 2), MaxPool(3, 2), AveragePool(5, 1)):
        assert layer.shape((3, 1, 1))[1:] == (1, 1)


SIZE = "not a whole number from 1 to 2^31 − 1"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Conv2d(0), f"Conv2d: channels is 0, {SIZE}"),
        (lambda: Conv2d(-8), f"Conv2d: channels is -8, {SIZE}"),
        (lambda: Conv2d(True), f"Conv2d: channels is True, {SIZE}"),
        (lambda: Conv2d(8.0), f"Conv2d: channels is 8.0, {SIZE}"),
        (lambda: Conv2d(2**31), f"Conv2d: channels is 2147483648, {SIZE}"),
        (lambda: Conv2d(10**4000), f"Conv2d: channels is 1{'0' * 39}, {SIZE}"),
        (lambda: Conv2d(8, kernel=0), f"Conv2d: kernel is 0, {SIZE}"),
        (lambda: Conv2d(8, stride=0), f"Conv2d: stride is 0, {SIZE}"),
        (lambda: Conv2d(8, groups=0), f"Conv2d: groups is 0, {SIZE}"),
        (lambda: Conv2d(8, kernel=4), "Conv2d: kernel 4 is even; use an odd one, or state its padding"),
        (lambda: Conv2d(8, (1, 2)), "Conv2d: kernel (1, 2) is even; use an odd one, or state its padding"),
        (lambda: Conv2d(8, (3, 0)), f"Conv2d: kernel is (3, 0), {SIZE}"),
        (lambda: Conv2d(8, (3, 3, 3)), f"Conv2d: kernel is (3, 3, 3), {SIZE}"),
        (lambda: Conv2d(8, padding=-1), f"Conv2d: padding is -1, {SIZE.replace('1', '0', 1)}"),
        (lambda: Conv2d(8, padding=3), "Conv2d: with padding 3, a kernel of 3 would see padding only"),
        (lambda: Conv2d(8, 5, padding=0).shape((4, 4, 9)), "Conv2d: kernel 5 on an area of [4, 9]"),
        (lambda: Conv2d(8, groups=3), "Conv2d: 8 channels in 3 groups"),
        (lambda: Conv2d(9, groups=3).shape(IMAGE), "Conv2d: 4 channels in, 3 groups"),
        (
            lambda: DepthwiseConv2d(4),
            "DepthwiseConv2d: kernel 4 is even; use an odd one, or state its padding",
        ),
        (lambda: DepthwiseConv2d(3, 0), f"DepthwiseConv2d: stride is 0, {SIZE}"),
        (lambda: DepthwiseConv2d().shape((4,)), "DepthwiseConv2d: reads (channels, height, width), not (4,)"),
        (lambda: Conv2d(8).shape((4,)), "Conv2d: reads (channels, height, width), not (4,)"),
        (lambda: Conv2d(8).shape(IMAGE, IMAGE), "Conv2d: reads one input, not 2"),
        (lambda: Dense(0), f"Dense: features is 0, {SIZE}"),
        (lambda: Dense(8).shape(IMAGE), "Dense: reads (features,), not (4, 6, 5)"),
        (lambda: BatchNorm().shape((4,)), "BatchNorm: reads (channels, height, width), not (4,)"),
        (lambda: ReLU().shape(), "ReLU: reads one input, not 0"),
        (lambda: MaxPool(0, 1), f"MaxPool: kernel is 0, {SIZE}"),
        (lambda: MaxPool(2, 0), f"MaxPool: stride is 0, {SIZE}"),
        (lambda: MaxPool(8, 1).shape((4, 1, 9)), "MaxPool: kernel 8 on an area of [1, 9]"),
        (lambda: MaxPool(3, 2, padding=2), "MaxPool: padding 2 is more than half a kernel of 3"),
        (lambda: AdaptiveAveragePool(0), f"AdaptiveAveragePool: size is 0, {SIZE}"),
        (
            lambda: AdaptiveAveragePool(2).shape((4,)),
            "AdaptiveAveragePool: reads (channels, height, width), not (4,)",
        ),
        (lambda: AveragePool(2, 0), f"AveragePool: stride is 0, {SIZE}"),
        (lambda: AveragePool(2, 2).shape((4, 1, 1)), "AveragePool: kernel 2 on an area of [1, 1]"),
        (lambda: GlobalPool().shape((4,)), "GlobalPool: reads (channels, height, width), not (4,)"),
        (
            lambda: Add().shape(IMAGE),
            "Add: needs two or more inputs of one shape, reads [(4, 6, 5)]",
        ),
        (
            lambda: Add().shape(IMAGE, (5, 6, 5)),
            "Add: needs two or more inputs of one shape, reads [(4, 6, 5), (5, 6, 5)]",
        ),
        (
            lambda: Concat().shape(IMAGE, (4, 5, 6)),
            "Concat: needs two or more inputs of one area, reads [(4, 6, 5), (4, 5, 6)]",
        ),
        (
            lambda: Concat().shape((4,), IMAGE),
            "Concat: needs two or more inputs of one area, reads [(4,), (4, 6, 5)]",
        ),
        (
            lambda: Concat().shape((4, 5), (3, 5)),
            "Concat: reads images or vectors, not (positions, features) as (4, 5)",
        ),
        (lambda: Flatten().shape((4,)), "Flatten: reads (channels, height, width), not (4,)"),
        (lambda: Dropout(0.0), "Dropout: rate 0.0 is not between 0 and 1"),
        (lambda: Dropout(1.0), "Dropout: rate 1.0 is not between 0 and 1"),
        (lambda: Dropout(nan), "Dropout: rate nan is not between 0 and 1"),
        (lambda: Dropout(inf), "Dropout: rate inf is not between 0 and 1"),
        (
            lambda: Gate().shape(IMAGE, (5,)),
            "Gate: needs (channels, height, width), (channels,); reads [(4, 6, 5), (5,)]",
        ),
        (
            lambda: Gate().shape((4,), (4,)),
            "Gate: needs (channels, height, width), (channels,); reads [(4,), (4,)]",
        ),
    ],
)
def test_refused_in_one_line(build, message):
    with pytest.raises(ShapeError) as raised:
        build()
    assert str(raised.value) == message


def test_windows_see_what_they_see_one_by_one():
    """Kernels, strides, padding and sides that a page of paper holds."""
    for kernel, stride, side in product(range(1, 7), range(1, 7), range(1, 9)):
        for padding in range(kernel):
            windows = Windows(side, kernel, stride, padding)
            if windows.padded < kernel:
                continue
            starts = range(-padding, side + padding - kernel + 1, stride)
            seen = [[0 <= start + tap < side for start in starts] for tap in range(kernel)]
            assert windows.num == len(starts)
            assert windows.taps_on_image == sum(map(sum, seen))
            assert windows.all_taps_see == all(map(any, seen)), windows
