"""Which tensors of a network may be overwritten by their reader."""

from __future__ import annotations

from nas.graph import INPUT, Graph


def may_overwrite(graph: Graph, name: str) -> bool:
    """Whether a tensor's only reader may write its result in its place, which spares memory and time."""
    if name == INPUT or len(graph.readers[name]) > 1:
        return False
    return graph.node[name].layer.frees_output
