"""Weights at the start, and their fingerprint."""

from __future__ import annotations

import numpy as np
import pytest

from nas.layers import BatchNorm, Conv2d, Dense, GlobalPool, Layer, Shape
from nas.text_seeds import llama_4x128
from nas.weights import Weights, digest, generator, initial, starts
from tests.nas.graphs import SAMPLES, chain
from tests.nas.text.samples import TEXT_SAMPLES


@pytest.mark.parametrize("sample", [*SAMPLES.values(), *TEXT_SAMPLES.values()], ids=str)
def test_every_tensor_of_a_layer_has_a_start(sample: tuple[Layer, tuple[Shape, ...]]) -> None:
    layer, reads = sample
    for tensor, shape in {**layer.weights(*reads), **layer.statistics(*reads)}.items():
        values = starts(layer, tensor, shape, reads, np.random.default_rng(0))
        assert (values.shape, values.dtype) == (shape, np.dtype(np.float32))


def test_a_grouped_convolution_counts_all_its_channels_in_the_fan_out() -> None:
    values = initial(chain(Conv2d(512, 3, groups=4), GlobalPool(), input=(64, 8, 8)), 0)["Conv2d.0.weight"]
    assert values.std() == pytest.approx((2 / (512 * 9)) ** 0.5, rel=0.02)


def test_a_tensor_depends_on_the_seed_and_its_name_alone() -> None:
    short = chain(Conv2d(4), GlobalPool(), Dense(3))
    long = chain(Conv2d(4), GlobalPool(), Dense(3), Dense(3))
    for name, values in initial(short, 7).items():
        assert np.array_equal(values, initial(long, 7)[name])
        assert not np.array_equal(values, initial(long, 8)[name])
    assert generator(1, "23").random() != generator(12, "3").random()


def test_the_fingerprint_sees_names_types_shapes_and_values_but_neither_order_nor_layout() -> None:
    found = {"a.weight": np.arange(6, dtype=np.float32), "b.weight": np.ones(2, np.float32)}
    same = {name: np.array(found[name]) for name in reversed(found)}
    assert digest(found) == digest(same)
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert digest({"a": rows}) == digest({"a": np.asfortranarray(rows)})
    others: list[Weights] = [
        {"a.weight": found["a.weight"], "c.weight": found["b.weight"]},
        {**found, "a.weight": found["a.weight"].reshape(2, 3)},
        {**found, "a.weight": found["a.weight"].astype(np.float64)},
        {**found, "a.weight": found["a.weight"].view(np.int32)},
        {**found, "b.weight": np.nextafter(found["b.weight"], np.float32(2))},
        {"a.weight": found["a.weight"]},
        {},
    ]
    assert len({digest(found), *map(digest, others)}) == 1 + len(others)


def test_the_fingerprint_of_a_seed_is_pinned() -> None:
    """It stands in the journal; numpy promises its random streams for one version only."""
    images, text = chain(Conv2d(4), BatchNorm(), GlobalPool(), Dense(3)), llama_4x128()
    of_images = "46639c07b99ce665c6a874821a31eee16231f532f660fc5ad46f01017f8e16fe"
    assert digest(initial(images, 1)) == of_images
    assert digest(initial(text, 1)) == "0eab0352a7cdae8ed9222662e69d6d24d43071e3967e89e9e811bc0a154f1ec8"
