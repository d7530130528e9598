"""What must really be computed: never more than is counted, and as much as can be counted by hand."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings

from nas import layers
from nas.graph import Graph, Node
from nas.head import NextSymbol
from nas.layers import Add, BatchNorm, Conv2d, Dense, Embedding, Flatten, GlobalPool, Layer, Linear
from nas.products import element_operations, least_elements, least_products
from nas.seeds import resnet50
from tests.nas.graphs import chain, graphs, texts
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


@given(graphs() | texts())
@settings(max_examples=40)
def test_no_network_needs_more_than_is_counted(graph: Graph) -> None:
    train, evaluate = least_products(graph)
    assert 0 <= train <= graph.cost.train.mac
    assert 0 <= evaluate <= graph.cost.evaluate.mac
    train, evaluate = least_elements(graph)
    assert 0 <= train <= element_operations(graph.cost.train)
    assert 0 <= evaluate <= element_operations(graph.cost.evaluate)


def of_elements(*layers: Layer) -> tuple[int, int]:
    """The bounds of element-wise work on 36 elements of each of 2 channels, without weights above."""
    rest = (Flatten(), Dense(2)) if not isinstance(layers[-1], GlobalPool) else (Dense(2),)
    return least_elements(chain(*layers, *rest, input=(2, 6, 6)))


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


def test_what_no_library_does_without_and_what_is_counted_in_vain(comes_to_what_was_read: ComesTo) -> None:
    """A bias multiplies nothing. A compiler may leave out a ReLU of a ReLU, and then a row of them takes as
    long as one."""
    comes_to_what_was_read("products.txt", {**globals(), **vars(layers)})


def test_of_resnet_50_more_than_a_third_must_be_made() -> None:
    graph = resnet50((3, 224, 224), 1000)
    train, _ = least_products(graph)
    assert 0.3 < train / graph.cost.train.mac < 0.8
