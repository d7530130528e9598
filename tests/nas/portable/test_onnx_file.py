"""A network as ONNX: onnxruntime answers what our own modules answer, within the noise of fp32."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings

from nas.graph import Graph
from nas.layers import AdaptiveAveragePool, AveragePool, Conv2d, Dense, Flatten, GlobalPool, MaxPool
from nas.portable.names import PortableError
from nas.portable.onnx_draft import write
from nas.portable.onnx_file import onnx_file
from nas.seeds import residual, resnet50
from nas.text_seeds import TEXT_SEEDS
from tests.nas.graphs import LAYERS, chain, graphs, grouped
from tests.nas.portable.networks import Unheard, answers, examples, random_weights
from tests.nas.text.samples import texts


def session(graph: Graph) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    content = onnx_file(graph, random_weights(graph), {"trial": "3"})
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def compare(graph: Graph) -> None:
    given = examples(graph).numpy()
    name = "symbols" if graph.head.symbols_in else "images"
    given = given if graph.head.symbols_in else given.astype(np.float32)
    (logits,) = session(graph).run(["logits"], {name: given})
    wanted = answers(graph)
    assert logits.shape == wanted.shape
    np.testing.assert_allclose(logits, wanted, rtol=1e-4, atol=1e-4 * max(1.0, np.abs(wanted).max()))


@settings(max_examples=25, deadline=None)
@given(graphs())
def test_any_network_of_images(graph: Graph) -> None:
    compare(graph)


@settings(max_examples=25, deadline=None)
@given(texts())
def test_any_network_of_text(graph: Graph) -> None:
    compare(graph)


@pytest.mark.parametrize("graph", [grouped(), resnet50((3, 32, 32))], ids=["grouped", "50"])
def test_a_network_of_images(graph: Graph) -> None:
    compare(graph)


@pytest.mark.parametrize("name", ["gpt-4x128", "llama-4x128"])
def test_a_seed_of_text(name: str) -> None:
    compare(TEXT_SEEDS[name]((16,)))


def test_a_stride_wider_than_the_image() -> None:
    compare(
        chain(
            *(Conv2d(4, 1, 2), Conv2d(6, (3, 1), 9), Conv2d(6, 3, 5, padding=2), MaxPool(1, 2)),
            *(GlobalPool(), Dense(3)),
            input=(3, 9, 9),
        )
    )


@pytest.mark.parametrize("kernel", [3, (2, 3)])
def test_the_last_window_of_an_average_may_end_beyond_the_padding(kernel: int | tuple[int, int]) -> None:
    """Its mean is over what lies before that end: torch divides by fewer taps there."""
    pool = AveragePool(kernel, 2, padding=1, ceil_mode=True)
    compare(chain(Conv2d(2), pool, Flatten(), Dense(3), input=(1, 6, 7)))
    compare(chain(Conv2d(2), AdaptiveAveragePool((4, 5)), Flatten(), Dense(3), input=(1, 6, 7)))


def test_what_the_file_says_of_itself() -> None:
    found = session(residual())
    (images,), (logits,) = found.get_inputs(), found.get_outputs()
    assert (images.name, images.type, images.shape) == ("images", "tensor(float)", ["batch", 1, 32, 32])
    assert (logits.name, logits.type, logits.shape) == ("logits", "tensor(float)", ["batch", 10])
    told = found.get_modelmeta()
    assert (told.producer_name, told.custom_metadata_map) == ("aiperf-hpc", {"trial": "3"})


def test_every_layer_is_written() -> None:
    assert write.registry.keys() >= LAYERS


def test_a_layer_of_somebody_else_is_refused_by_name() -> None:
    graph = chain(Conv2d(2), Unheard(), GlobalPool(), input=(1, 4, 4))
    with pytest.raises(
        PortableError, match=r"^Unheard is not known to nas\.portable: it cannot be written for ONNX$"
    ):
        onnx_file(graph, random_weights(graph), {})
