"""Every layer's shape, weights and operations, against figures worked out by hand."""

from __future__ import annotations

from itertools import product
from keyword import iskeyword
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas import layers
from nas.head import Classes, NextSymbol
from nas.layers import Layer, MissingReading, Shape, Windows
from nas.ops import OPS, PASSES, Cost, Ops
from tests.nas.graphs import IMAGE, LAYERS, SAMPLES, TEXT, TEXT_SAMPLES
from tests.tables import ComesTo

ALL = {**SAMPLES, **TEXT_SAMPLES}


def test_every_layer_has_a_sample_and_its_shape_and_operations_are_those_by_hand(
    comes_to_what_was_read: ComesTo,
) -> None:
    """Operations forward, for the gradients of the input and of the weights, and in validation. (4, 6, 5) has
    120 elements on areas of 30; strides of 2 leave (3, 3), windows of 2 leave (3, 2). (5, 12) has 60; of 5
    positions a head has 15 pairs."""
    assert {type(layer).__name__ for layer, _ in ALL.values()} == {kind.__name__ for kind in LAYERS}
    named = []

    def counted(name: str) -> tuple[Shape, dict[str, str]]:
        named.append(name)
        layer, inputs = ALL[name]
        passes = {row: [getattr(cost, each) for each in PASSES] for row, cost in layer.costs(*inputs).items()}
        return layer.shape(*inputs), {row: " | ".join(map(text, each)) for row, each in passes.items()}

    def text(operations: Ops) -> str:
        return " ".join(f"{kind}={num}" for kind, num in operations._asdict().items() if num) or "0"

    comes_to_what_was_read("layers.txt", {"counted": counted})
    assert named == [*ALL]


@pytest.mark.parametrize("reading", ["shape", "costs", "footprint", "torch_line", "onnx"])
def test_every_layer_states_every_reading(reading: str) -> None:
    """Its module is held by test_modules, its starting values by test_seeds. What is not stated is an error
    when it is asked for, and never a default."""
    nothing: Any = getattr(Layer, reading)
    assert [kind.__name__ for kind in LAYERS if getattr(kind, reading) is nothing] == []
    method = rf"^Layer does not state its .+; its class needs the method '{reading}'$"
    with pytest.raises(MissingReading, match=method):
        nothing(Layer(), 4)


def test_losses_by_hand() -> None:
    forward, gradient = Ops(cmp=9, add=21, exp=11, div=10), Ops(add=10, mul=10)
    assert Classes().loss((10,)) == Cost(forward, gradient, Ops(), Ops(cmp=9))
    asked = Ops(cmp=27, add=60, exp=33)
    assert NextSymbol().loss((3, 10)) == Cost(forward * 3, gradient * 3, Ops(), asked)


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


vectors = st.builds(Ops, *[st.integers(0, 10**18)] * 7)
costs = st.builds(Cost, vectors, vectors, vectors, vectors)


@given(vectors, vectors, st.integers(0, 1000))
def test_counts_are_a_vector_space_over_exact_integers(a: Ops, b: Ops, times: int) -> None:
    assert a + b == Ops(*[x + y for x, y in zip(a, b)])
    assert a * times == Ops(*[x * times for x in a])
    assert (a + b * times).price(OPS) == a.price(OPS) + times * b.price(OPS)
    assert a.price(b) == sum(x * y for x, y in zip(a, b))


@given(costs, costs)
def test_costs_add_by_pass(a: Cost, b: Cost) -> None:
    assert (a + b).train == a.train + b.train
    assert (a + b).evaluate == a.evaluate + b.evaluate
    assert a.train == a.forward + a.backward
    assert a.backward == a.input_grad + a.weight_grad
