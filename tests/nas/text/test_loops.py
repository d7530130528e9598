"""Layers of sequences cost as many operations as loops over single numbers make."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from nas.head import NextSymbol
from nas.layers import Attention, Embedding, Layer, Shape
from nas.ops import Cost, Ops
from tests.nas.text.naive import Tallies, Tally, cross_entropy, log_probability, naive
from tests.nas.text.samples import TEXT_SAMPLES


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


@pytest.mark.parametrize("window", [1, 2, 3, 9])
@pytest.mark.parametrize("positions", [1, 2, 5])
def test_a_window_is_what_a_loop_over_pairs_makes(positions: int, window: int) -> None:
    """One as long as the text makes what no window makes."""
    layer, inputs = Attention(4, 2, window=window, head_norm=True), ((positions, 8), *[(positions, 4)] * 2)
    assert made(layer, inputs) == sum(layer.costs(*inputs).values(), Cost())
    counted, masked = layer.costs(*inputs)["attention"], layer.masked(*inputs)
    assert counted.forward.mac + masked.forward.mac == 2 * 4 * positions**2 * 2
    if window >= positions:
        assert layer.costs(*inputs) == replace(layer, window=0).costs(*inputs)


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
