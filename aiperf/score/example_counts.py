"""What one example costs in one architecture: operations, parameters and memory traffic; and its operations
as AIPerf 1.0 counted them, for one labelled column of comparison and never for the score."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from aiperf.journal.events import Dispatched
from nas.frozen import frozen
from nas.graph import INPUT, Graph, Node
from nas.layers import Add, BatchNorm, Dense, GlobalPool, Layer, MaxPool, ReLU, Shape
from nas.ops import Ops


@dataclass(frozen=True, slots=True)
class Counted:
    """Operations of one example in one architecture."""

    graph_key: str
    forward: Ops
    backward: Ops
    evaluate: Ops
    parameters: int
    old: OldCount | None = None
    """Operations as AIPerf 1.0 counted them; None if the graph was not available."""
    moved: int | None = None
    """Elements that a training example moves, layer by layer; None if the graph was not available."""

    @property
    def train(self) -> Ops:
        return self.forward + self.backward

    def train_price(self, prices: Ops) -> int:
        """The same, each kind weighed by its price."""
        return self.forward.price(prices) + self.backward.price(prices)


def counted(graph: Graph) -> Counted:
    """The counts of an architecture, computed from its graph."""
    cost = graph.cost
    return Counted(
        graph.key,
        cost.forward,
        cost.backward,
        cost.evaluate,
        graph.num_parameters,
        old_count(graph),
        all_moved_elements(graph),
    )


def recorded(dispatched: Dispatched) -> Counted:
    """The counts in a line `Dispatched`."""
    return Counted(
        dispatched.graph_key,
        dispatched.forward,
        dispatched.backward,
        dispatched.evaluate,
        dispatched.parameters,
    )


def moved_elements(graph: Graph, node: Node) -> int:
    """Elements of activations and gradients that one node reads and writes for one training example, if no
    layer leaves anything in a cache for the next. Forward, the inputs are read and the output is written.
    Backward, the output's gradient and the inputs are read, and the inputs' gradients are written, as far as
    they are needed."""
    read, written = sum(map(prod, graph.reads(node))), prod(graph.shapes[node.name])
    trained, reached = node.name in graph.trained, not graph.trained.isdisjoint(node.inputs)
    return read + written + (written + read if trained else 0) + (read if reached else 0)


def all_moved_elements(graph: Graph) -> int:
    """The same of all nodes together."""
    return sum(moved_elements(graph, node) for node in graph.nodes)


@frozen
class OldCount:
    """Operations for one image, as one sum over all kinds, with AIPerf 1.0's own weights.

    Its counter described each layer by position, and credited whole epochs. Layers that it did not know
    (gates, dropout, ReLU6, average pools, biases of convolutions) count nothing here. For its own ResNet-50
    (`resnet50_v1`) it gave 7,806,583,495 forward and 15,246,874,820 backward operations per image.

    Ren et al., "AIPerf: Automated Machine Learning as an AI-HPC Benchmark", Big Data Mining and Analytics
    4(3), 2021, and the program published with it.
    """

    forward: int
    backward: int


def old_count(graph: Graph) -> OldCount:
    """Operations for one image, as AIPerf 1.0 counted them."""
    forward, backward = _old_softmax(graph.classes), 0
    for node in graph.nodes:
        there, back = _old_layer_count(node.layer, graph.reads(node), INPUT in node.inputs)
        forward += there
        backward += back
    return OldCount(forward, backward)


def _old_softmax(classes: int) -> int:
    # Without a derivation there: exponentials count 8 each, divisions 4, and the sum one less than its terms.
    return 8 * classes + (classes - 1) + 4 * classes


# Children share nearly all their layers with their parents.
@lru_cache(maxsize=1 << 16)
def _old_layer_count(layer: Layer, inputs: tuple[Shape, ...], first: bool) -> tuple[int, int]:
    """Operations of a layer, forward and backward."""
    x = prod(inputs[0])
    if convolution := layer.convolution(*inputs):
        channels, height, width = layer.shape(*inputs)
        area = height * width
        products = prod(convolution.kernels) * (inputs[0][0] // convolution.groups) * channels
        return 2 * area * products, products * ((2 if first else 4) * area + 2)
    if isinstance(layer, Dense):
        products = x * layer.features
        return 2 * products, 4 * products + 2 * (x + 1) * layer.features
    if isinstance(layer, BatchNorm):
        return 7 * x, 36
    if isinstance(layer, ReLU):
        return x, 0
    if isinstance(layer, Add):
        return x * (len(inputs) - 1), 0
    if isinstance(layer, MaxPool):
        return x * prod(layer.kernels) // prod(layer.strides), 0
    if isinstance(layer, GlobalPool):
        channels = inputs[0][0]
        return x - channels + 4 * channels, 0
    return 0, 0
