"""Which tensors of a network may be overwritten by their reader."""

from __future__ import annotations

from nas.graph import INPUT, Graph
from nas.layers import Attention, Dropout, Flatten, ReLU, ReLU6

# Their backward pass needs their own output, or their output is another tensor's memory.
KEEP_THEIR_OUTPUT = (ReLU, ReLU6, Flatten, Dropout, Attention)


def may_overwrite(graph: Graph, name: str) -> bool:
    """Whether a tensor's only reader may write its result in its place, which spares memory and time."""
    if name == INPUT or len(graph.readers[name]) > 1:
        return False
    return not isinstance(graph.node[name].layer, KEEP_THEIR_OUTPUT)
