"""What must really be computed: never more than is counted, and as much as can be counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from nas.graph import Graph, Node
from nas.layers import (
    GELU,
    AdaptiveAveragePool,
    Add,
    AveragePool,
    BatchNorm,
    Conv2d,
    Dense,
    DepthwiseConv2d,
    Flatten,
    GlobalPool,
    Layer,
    MaxPool,
    ReLU,
)
from nas.products import element_operations, least_elements, least_products
from nas.seeds import resnet50
from tests.nas.graphs import chain, graphs
from tests.nas.text.samples import texts


def of_layer(side: int, convolution: Conv2d) -> tuple[int, int]:
    """The two bounds of one convolution of 2 to 3 channels, without the dense layer behind it."""
    graph = chain(convolution, Flatten(), Dense(2), input=(2, side, side))
    dense = 2 * graph.shapes["Flatten.1"][0]
    train, evaluate = least_products(graph)
    return train - 3 * dense, evaluate - dense


def taps_by_hand(side: int, kernel: int, stride: int) -> int:
    """The taps of all windows that fall on the image, counted one by one."""
    reach = (kernel - 1) // 2
    starts = range(-reach, side + reach - kernel + 1, stride)
    return sum(
        0 <= y + dy < side and 0 <= x + dx < side
        for y in starts
        for x in starts
        for dy in range(kernel)
        for dx in range(kernel)
    )


@pytest.mark.parametrize("side", [1, 2, 5, 8])
@pytest.mark.parametrize(("kernel", "saving"), [(1, 1), (3, 4), (5, 25), (7, 49)])
@pytest.mark.parametrize("stride", [1, 2])
def test_padding_and_what_an_algorithm_can_save_are_left_out(
    side: int, kernel: int, saving: int, stride: int
) -> None:
    """The first layer needs no gradient of what it reads: it has two passes, and one in validation."""
    products = 2 * 3 * taps_by_hand(side, kernel, stride)
    assert of_layer(side, Conv2d(3, kernel, stride)) == (int(2 * products / saving), int(products / saving))


def test_of_unpadded_and_rectangular_kernels_too() -> None:
    """4 x 4 windows of 3 x 3 taps; 7 taps of 3, of which rows of 6 pixels see 4 5 6 6 5 4, of 1 pixel high;
    and windows of 2 x 2 side by side. A bias multiplies nothing."""
    assert of_layer(6, Conv2d(3, padding=0, bias=True)) == (2 * 6 * 16 * 9 // 4, 6 * 16 * 9 // 4)
    assert of_layer(6, Conv2d(3, (1, 7))) == (2 * 6 * 6 * 30 // 7, 6 * 6 * 30 // 7)
    assert of_layer(6, Conv2d(3, 2, 2, padding=0)) == (2 * 6 * 36 // 4, 6 * 36 // 4)
    # On images of one pixel eight ninths of what is counted are padding.
    assert of_layer(1, Conv2d(3, 3)) == (2 * 2 * 3 // 4, 2 * 3 // 4)


@given(graphs() | texts())
@settings(max_examples=40)
def test_no_network_needs_more_than_is_counted(graph: Graph) -> None:
    train, evaluate = least_products(graph)
    assert 0 <= train <= graph.cost.train.mac
    assert 0 <= evaluate <= graph.cost.evaluate.mac
    train, evaluate = least_elements(graph)
    assert 0 <= train <= element_operations(graph.cost.train)
    assert 0 <= evaluate <= element_operations(graph.cost.evaluate)


@pytest.mark.parametrize(
    ("layer", "least"),
    [
        # Of 36 elements for each of 2 channels, without weights above: a norm's gradient is of its weights.
        (BatchNorm(), (8 * 72, 0)),
        (ReLU(), (72, 72)),
        (GELU(), (5 * 72, 5 * 72)),
        (GlobalPool(), (70, 70)),
        # Windows side by side; in a row of 6 windows of 3; with gaps; and of one element, which is copied.
        (MaxPool(2, 2, padding=0), (72 - 18, 72 - 18)),
        (MaxPool(3, 1), (72, 72)),
        (AveragePool(2, 4, padding=0), (32 - 8, 32 - 8)),
        (AveragePool(1, 2, padding=0), (0, 0)),
        (AdaptiveAveragePool(12), (0, 0)),
        (Conv2d(5, 3, bias=True), (0, 0)),
    ],
)
def test_element_wise_work_that_no_library_does_without(layer: Layer, least: tuple[int, int]) -> None:
    rest = (Flatten(), Dense(2)) if not isinstance(layer, GlobalPool) else (Dense(2),)
    assert least_elements(chain(layer, *rest, input=(2, 6, 6))) == least


def test_a_norm_below_weights_has_a_gradient_of_its_input_and_a_tensor_added_to_itself_is_a_factor() -> None:
    graph = chain(Conv2d(2, 1), BatchNorm(), GlobalPool(), Dense(2), input=(2, 6, 6))
    twice = (*graph.nodes[:2], Node("add", Add(), ("BatchNorm.1",) * 9), *graph.nodes[2:])
    twice = (*twice[:3], replace(twice[3], inputs=("add",)), *twice[4:])
    found = [least_elements(Graph(graph.input, nodes)) for nodes in (graph.nodes, twice)]
    assert found == [(12 * 72 + 70, 70), (12 * 72 + 70, 70)]


@pytest.mark.parametrize(
    ("layer", "side", "says"),
    [
        (Conv2d(2, 255), 1, "the kernel of Conv2d.0 has 255 taps along 1 pixels"),
        (DepthwiseConv2d((1, 21)), 8, "the kernel of DepthwiseConv2d.0 has 21 taps along 8 pixels"),
        (Conv2d(2, 7, dilation=9), 8, "the kernel of Conv2d.0 has 7 taps along 8 pixels"),
        (Conv2d(2, (1, 19)), 8, ""),
        (Conv2d(2, 3, dilation=36), 8, ""),
        (Conv2d(2, 5), 1, ""),
    ],
)
def test_a_kernel_far_beyond_its_image_is_named(layer: Layer, side: int, says: str) -> None:
    assert chain(layer, GlobalPool(), Dense(2), input=(2, side, side)).kernel_beyond_image == says


def test_of_resnet_50_more_than_a_third_must_be_made() -> None:
    graph = resnet50((3, 224, 224), 1000)
    train, _ = least_products(graph)
    assert 0.3 < train / graph.cost.train.mac < 0.8
