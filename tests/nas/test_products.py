"""What must really be computed: never more than is counted, and as much as can be counted by hand."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings

from nas import layers
from nas.graph import Graph, Node
from nas.head import NextSymbol
from nas.layers import (
    GELU,
    AdaptiveAveragePool,
    Add,
    AveragePool,
    BatchNorm,
    Conv2d,
    Dense,
    Embedding,
    Flatten,
    GlobalPool,
    Layer,
    Linear,
    MaxPool,
    ReLU,
    ReLU6,
)
from nas.products import element_operations, least_elements, least_products
from nas.seeds import resnet50
from tests.nas.graphs import chain, graphs
from tests.nas.text.samples import texts
from tests.tables import ComesTo


def of_layer(side: int, convolution: Conv2d) -> tuple[int, int]:
    """The two bounds of one convolution of 2 to 3 channels, without the dense layer behind it."""
    graph = chain(convolution, Flatten(), Dense(2), input=(2, side, side))
    dense = 2 * graph.shapes["Flatten.1"][0]
    train, evaluate = least_products(graph)
    return train - 3 * dense, evaluate - dense


def along_by_hand(side: int, kernel: int, stride: int, saving: int) -> Fraction:
    """The taps along one side that fall on the image, counted one by one, less what is saved; no less than
    the windows that see it."""
    reach = (kernel - 1) // 2
    starts = range(-reach, side + reach - kernel + 1, stride)
    seen = [sum(0 <= start + tap < side for tap in range(kernel)) for start in starts]
    return max(Fraction(sum(seen), saving), Fraction(sum(map(bool, seen))))


@pytest.mark.parametrize("side", [1, 2, 5, 8])
@pytest.mark.parametrize(("kernel", "saving"), [(1, 1), (3, 2), (5, 5), (7, 7)])
@pytest.mark.parametrize("stride", [1, 2])
def test_padding_and_what_an_algorithm_can_save_are_left_out(
    side: int, kernel: int, saving: int, stride: int
) -> None:
    """The first layer needs no gradient of what it reads: it has two passes, and one in validation."""
    products = 2 * 3 * along_by_hand(side, kernel, stride, saving) ** 2
    assert of_layer(side, Conv2d(3, kernel, stride)) == (int(2 * products), int(products))


def test_of_unpadded_and_rectangular_kernels_too() -> None:
    """4 x 4 windows of 3 x 3 taps; 6 rows of 6 windows of 7 taps, which are no fewer products than windows;
    and windows of 2 x 2 side by side. A bias multiplies nothing."""
    assert of_layer(6, Conv2d(3, padding=0, bias=True)) == (2 * 6 * 16 * 9 // 4, 6 * 16 * 9 // 4)
    assert of_layer(6, Conv2d(3, (1, 7))) == (2 * 6 * 36, 6 * 36)
    assert of_layer(6, Conv2d(3, 2, 2, padding=0)) == (2 * 6 * 36 // 4, 6 * 36 // 4)
    # On images of one pixel all but one of the taps are padding, and with such a dilation all but one of two.
    assert of_layer(1, Conv2d(3, 3)) == of_layer(1, Conv2d(3, 5)) == (2 * 2 * 3, 2 * 3)
    assert of_layer(2, Conv2d(3, 3, dilation=3)) == (2 * 2 * 3, 2 * 3)


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


def test_a_relu_of_a_relu_is_left_out() -> None:
    """A compiler may do so, and then a row of them takes as long as one."""
    relus = [ReLU()] * 3
    assert least_elements(chain(*relus, ReLU6(), ReLU(), Flatten(), Dense(2), input=(2, 6, 6))) == (288, 288)


def test_a_norm_below_weights_has_a_gradient_of_its_input_and_a_tensor_added_to_itself_is_a_factor() -> None:
    graph = chain(Conv2d(2, 1), BatchNorm(), GlobalPool(), Dense(2), input=(2, 6, 6))
    twice = (*graph.nodes[:2], Node("add", Add(), ("BatchNorm.1",) * 9), *graph.nodes[2:])
    twice = (*twice[:3], replace(twice[3], inputs=("add",)), *twice[4:])
    found = [least_elements(Graph(graph.input, nodes)) for nodes in (graph.nodes, twice)]
    assert found == [(12 * 72 + 70, 70), (12 * 72 + 70, 70)]


def in_vain(layer: Layer, side: int) -> str:
    return chain(layer, GlobalPool(), Dense(2), input=(2, side, side)).counted_in_vain


def choosing(experts: Layer) -> str:
    """For positions with 3 features: more experts make more comparisons than products of scores."""
    return chain(Embedding(7, 3), experts, Linear(7), input=(5,), head=NextSymbol()).counted_in_vain


def test_what_is_counted_in_vain_is_named(comes_to_what_was_read: ComesTo) -> None:
    comes_to_what_was_read("in_vain.txt", {**globals(), **vars(layers)})


def test_of_resnet_50_more_than_a_third_must_be_made() -> None:
    graph = resnet50((3, 224, 224), 1000)
    train, _ = least_products(graph)
    assert 0.3 < train / graph.cost.train.mac < 0.8
