"""That the bytes of PyTorch's compiler are counted for code of the kind that a device would get."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from nas.graph import Graph
from nas.layers import Add, BatchNorm, ReLU
from nas.seeds import residual
from tests.benchmarks.test_scripts import column, of_page

pytestmark = pytest.mark.triton

PASSES = {BatchNorm: 8, ReLU: 5, Add: 3}
"""How often an eager step reads or writes the images of a layer, forward and backward."""


def eager(graph: Graph) -> int:
    """Bytes of all layers between the convolutions and of the additions of gradients, for each image."""
    size = {name: 2 * torch.Size(shape).numel() for name, shape in graph.shapes.items()}
    layers = sum(PASSES.get(type(node.layer), 0) * size[node.name] for node in graph.nodes)
    readers = Counter(name for node in graph.nodes for name in node.inputs)
    return layers + sum(3 * (num - 1) * size[name] for name, num in readers.items())


@pytest.mark.filterwarnings("ignore")  # those of inductor itself
def test_a_compiled_step_moves_less_than_an_eager_one_and_all_that_batch_norms_must() -> None:
    from benchmarks.inductor_bytes import Moved, moved

    graph = residual((3, 32, 32), 10, (32, 64))
    found = moved(graph, 64)
    norms = [node.name for node in graph.nodes if type(node.layer) is BatchNorm]
    size = sum(2 * torch.Size(graph.shapes[name]).numel() for name in norms)
    assert found.pools == 0
    # Forward: read for the sums, read, write. Backward: images and gradients twice, write.
    assert found.forward > 3 * size
    assert found.backward > 5 * size
    assert found.kernels < eager(graph)
    (page,) = (each for each in of_page("performance.md") if each[0][-1] == "compiled by Inductor")
    assert [name for name, _ in Moved(0, 0, 0, 0).rows() if name not in column(page)] == []
