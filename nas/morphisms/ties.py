"""Which widths of a graph hang together, and which are free."""

from __future__ import annotations

from math import lcm

from nas.frozen import frozen
from nas.graph import INPUT, Graph, Node, once
from nas.layers import Concat


@frozen
class Tie:
    """The layers that mix channels and whose own must be widened together."""

    producers: tuple[str, ...]
    width: int
    groups: int
    """The number of runs of channels that grouped convolutions and shuffles keep apart on either side."""
    torn: bool
    """Whether a layer that tears copies apart, a dropout, reads them before another mixes them."""


@once
def ties(graph: Graph) -> list[Tie]:
    """Every set of producers whose width is free: not that of the image or of the classes."""
    root = {name: name for name in graph.shapes}

    def find(name: str) -> str:
        """One name for all that are tied. Each search halves its path, so that the next is short (Tarjan and
        van Leeuwen, "Worst-case analysis of set union algorithms", JACM 31(2), 1984)."""
        while root[name] != name:
            root[name] = name = root[root[name]]
        return name

    # Whatever treats each channel by itself has as many as it reads; an addition ties all that it reads.
    for node in graph.nodes:
        if node.layer.mixes_channels or isinstance(node.layer, Concat):
            continue
        first = find(node.inputs[0])
        for name in (node.name, *node.inputs[1:]):
            root[find(name)] = first
    stuck = {find(INPUT), find(graph.output)}  # given by the data
    stuck.update(find(node.inputs[0]) for node in graph.nodes if node.layer.fixes_width)
    torn = {find(node.name) for node in graph.nodes if node.layer.tears_copies}
    groups: dict[str, int] = {}
    producers: dict[str, list[str]] = {}
    sums: dict[str, int] = {}
    for node in graph.nodes:
        own = find(node.name)
        if isinstance(node.layer, Concat):
            sums[own] = sums.get(own, 0) + 1
        elif node.layer.mixes_channels:
            producers.setdefault(own, []).append(node.name)
            if node.layer.groups > 1:
                for tied in (own, find(node.inputs[0])):
                    groups[tied] = lcm(groups.get(tied, 1), node.layer.groups)
    # Channels that were taken in turn from some runs lie in fewer runs: each shuffle needs that many times
    # the runs of the groups behind it. They lie over no others that were not shuffled.
    shuffled = [node for node in graph.nodes if node.layer.runs > node.layer.groups]
    for node in shuffled:
        groups[find(node.name)] = groups.get(find(node.name), 1) * node.layer.runs
    joined = {find(node.name) for node in graph.nodes if len(node.inputs) > 1}
    for node in shuffled:
        own = find(node.name)
        if own in joined or graph.shapes[node.name][0] % groups[own]:
            stuck.add(own)
    # The width of a concatenation is a sum. What ties it to another width, or to groups, fixes its parts.
    stuck.update(tied for tied, num in sums.items() if num > 1 or tied in producers or tied in groups)
    # From the end, so that one pass is enough for a concatenation that another one reads.
    for node in reversed(graph.nodes):
        if isinstance(node.layer, Concat):
            parts = {find(name) for name in node.inputs}
            stuck |= parts if find(node.name) in stuck else set()
            torn |= parts if find(node.name) in torn else set()
    return [
        Tie(tuple(names), graph.shapes[names[0]][0], groups.get(tied, 1), tied in torn)
        for tied, names in producers.items()
        if tied not in stuck
    ]


@once
def unmixed(graph: Graph) -> set[str]:
    """The tensors that may get more channels behind their own: nothing ties their width before
    layers read it that have weights for each channel, ungrouped."""
    found: set[str] = set()
    for node in reversed(graph.nodes):
        if node.name != graph.output and all(
            _takes_more(reader, found) for reader in graph.readers[node.name]
        ):
            found.add(node.name)
    return found


def _takes_more(reader: Node, unmixed: set[str]) -> bool:
    """Whether a reader can read more channels: it mixes all of them, or passes them on to readers that
    can."""
    if reader.layer.mixes_channels or reader.layer.runs > 1:
        return reader.layer.runs == 1
    ties = len(reader.inputs) > 1 and not isinstance(reader.layer, Concat)
    return not ties and not reader.layer.fixes_width and reader.name in unmixed
