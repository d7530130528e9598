"""What `make test-kernels` refuses and what it compiles; the compilers themselves are left to it. And that
the bytes of PyTorch's compiler are counted for code of the kind that a device would get."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from aiperf.engines.fused.triton_backend import InTriton
from aiperf.engines.fused.triton_launch import WIDEST_ROW
from nas.graph import Graph
from nas.layers import Add, BatchNorm, ReLU
from nas.seeds import residual
from tests.benchmarks.test_scripts import column, of_page
from tests.tables import ComesTo

pytestmark = pytest.mark.triton


def test_what_a_kernel_may_not_do(comes_to_what_was_read: ComesTo) -> None:
    """Within its bounds at first; then beyond one of them, or another kernel has other ones."""
    from benchmarks.triton_kernels import Footprint, Launch

    least = {"registers": 128, "spilled": 0, "shared": 8 * 1024, "wide": 4}

    def launched(aligned: str = "images out", **tile: int) -> Launch:
        constants = tuple((tile or {"CHANNELS": 128, "ROWS": 16, "UNIT": 16}).items())
        pointers = (("images", "*bf16"), ("out", "*bf16"))
        return Launch("gate", pointers, tuple(aligned.split()), constants, warps=4)

    def faults(lanes: int = 32, launch: Launch | None = None, **found: int) -> list[str]:
        return [*Footprint(**{**least, **found}).faults(launch or launched(), lanes)]

    names = {"faults": faults, "launched": launched, "WIDEST_ROW": WIDEST_ROW}
    comes_to_what_was_read("triton_faults.txt", names)


def test_what_is_compiled() -> None:
    """Every number format, every power of two by which rows can be aligned, and statistics whose second half
    is not aligned."""
    from benchmarks.triton_kernels import TYPES, launches, networks

    formats, units, unaligned = set(), set(), set()
    for name, graph, format, _ in networks():
        formats.add(format)
        if name in ("digits with gates", "6 and 9 channels"):
            for launch in launches(graph, format):
                units.add(dict(launch.constants).get("UNIT"))
                pointers = {argument for argument, kind in launch.signature if kind in TYPES.values()}
                unaligned |= {(launch.kernel, each) for each in pointers - set(launch.aligned)}
    assert formats == set(InTriton.formats)
    assert units == {None, 1, 2, 4, 8, 16}
    assert unaligned == {("normalise", "spread"), ("normalise", "residual_spread")}


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
