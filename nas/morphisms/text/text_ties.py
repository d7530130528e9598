"""Which widths of a text network are tied, and where it can be edited."""

from __future__ import annotations

import random

from nas.frozen import frozen
from nas.graph import INPUT, Graph, Node, once
from nas.head import NextSymbol
from nas.layers import (
    GELU,
    Add,
    Attention,
    Dropout,
    Embedding,
    Experts,
    Layer,
    LayerNorm,
    Linear,
    Positions,
    Product,
    ReLU,
    RMSNorm,
    SiLU,
    SquaredReLU,
)
from nas.morphisms.channels import MOST_FEATURES, MorphismError
from nas.morphisms.sites import FACTORS, known, possible, rounded

ACTIVATIONS = (GELU, SiLU, SquaredReLU, ReLU)
"""What stands between the two matrices of an MLP."""
MIXING = (Linear, Embedding, Attention, Experts)
"""Layers that put out sums over what they read, so that a tie ends at them. All others pass features on."""
OF_HIDDEN = (*ACTIVATIONS, Product, Add, Dropout)
"""What hidden features may pass: it treats each by itself, so that new ones change no old one."""
OF_STREAM = (Add, RMSNorm, Dropout)
"""What the features of a stream may pass. A norm mixes them by their mean of squares, for which `WidenStream`
makes up."""


@frozen
class TextTie:
    """Tensors that must have the same features: the nodes that write, pass on and read them."""

    width: int
    writers: tuple[Node, ...]
    passing: tuple[Node, ...]
    readers: tuple[Node, ...]


def check_text(graph: Graph) -> None:
    """Raises MorphismError for a graph that these morphisms do not apply to."""
    if _refusal(graph):
        raise MorphismError(_refusal(graph))


@once
def _refusal(graph: Graph) -> str:
    """Why none of these morphisms applies; empty if they do."""
    if not isinstance(graph.head, NextSymbol):
        return "the graph does not predict the next symbol; only those that do grow so"
    for node in graph.nodes:
        if isinstance(node.layer, (LayerNorm, Positions)):
            return f"{node.name} is a {type(node.layer).__name__}; only RMSNorm and rotary positions grow"
    for name, shape in graph.weights.items():
        if max(shape) > MOST_FEATURES:
            return f"{name} has {max(shape):,} rows or columns; text grows up to {MOST_FEATURES:,}"
    return ""


@once
def hidden(graph: Graph) -> list[TextTie]:
    """The insides of MLPs: Linears write them and read them, and every feature is treated by itself."""
    return [
        tie
        for tie in _ties(graph)
        if _all(tie.writers, Linear) and _all(tie.passing, *OF_HIDDEN) and _all(tie.readers, Linear)
        if _widen_together(graph, tie)
    ]


@once
def streams(graph: Graph) -> list[TextTie]:
    """The residual streams: a norm reads them, and blocks add to them."""
    return [
        tie
        for tie in _ties(graph)
        if _all(tie.writers, Linear, Embedding, Experts)
        and _all(tie.passing, *OF_STREAM)
        and _all(tie.readers, Linear, Experts)
        and any(isinstance(node.layer, RMSNorm) for node in tie.passing)
        and _widen_together(graph, tie)
    ]


def _widen_together(graph: Graph, tie: TextTie) -> bool:
    """Whether each reader that computes with the weight of an embedding finds that one among the writers, so
    that both are widened by one edit."""
    writers = {node.name for node in tie.writers}
    return all(graph.tables.get(node.name, node.name) in {node.name, *writers} for node in tie.readers)


def tie_of(graph: Graph, sites: list[TextTie], name: str, what: str) -> TextTie:
    """The tie into which a node writes. Raises MorphismError if its width is not free."""
    known(graph, name)
    for tie in sites:
        if name in [node.name for node in tie.writers]:
            return tie
    raise MorphismError(f"{name} does not write {what} whose width is free")


def wider_width(tie: TextTie, rng: random.Random) -> int:
    """A greater number of features, drawn."""
    return rng.choice(sorted({rounded(factor * tie.width) for factor in FACTORS}))


@frozen
class Heads:
    """An attention whose queries, keys and values are Linears that nobody else reads."""

    layer: Attention
    width: int
    """Features of one head."""
    query: str
    key: str
    value: str
    readers: tuple[str, ...]


def heads_of(graph: Graph, name: str) -> Heads:
    """The attention of that name, if its heads can change without a change elsewhere. Raises
    MorphismError."""
    check_text(graph)
    node = known(graph, name)
    if not isinstance(node.layer, Attention):
        raise MorphismError(f"{name} is not an attention")
    own = all(isinstance(graph.node[read].layer, Linear) for read in node.inputs)
    if not own or any(len(graph.readers[read]) > 1 for read in node.inputs):
        raise MorphismError(f"{name} does not read three Linears of its own")
    readers = graph.readers[name]
    if name == graph.output or not _all(readers, Linear) or graph.tables.keys() & {r.name for r in readers}:
        raise MorphismError(f"{name} is read by other layers than Linears")
    width = graph.shapes[name][1] // node.layer.heads
    query, key, value = node.inputs
    return Heads(node.layer, width, query, key, value, tuple(reader.name for reader in readers))


@once
def attentions(graph: Graph) -> list[str]:
    """Attentions that can get more heads."""
    return possible(graph, heads_of)


def _all(nodes: tuple[Node, ...], *kinds: type[Layer]) -> bool:
    return all(isinstance(node.layer, kinds) for node in nodes)


@once
def _ties(graph: Graph) -> list[TextTie]:
    """All ties but those of the input and of the output, whose widths are given."""
    check_text(graph)
    group = {name: {name} for name in graph.shapes}
    for node in graph.nodes:
        if not isinstance(node.layer, MIXING) or isinstance(node.layer, Experts):
            # Experts mix, and are as wide as what they read.
            joined = group[node.name].union(*[group[name] for name in node.inputs])
            group |= dict.fromkeys(joined, joined)
    parts: dict[int, tuple[list[Node], list[Node], list[Node]]] = {}
    for node in graph.nodes:
        mixes = isinstance(node.layer, MIXING)
        writers, passing, _ = parts.setdefault(id(group[node.name]), ([], [], []))
        (writers if mixes else passing).append(node)
        for tie in {id(group[name]) for name in node.inputs if mixes and name != INPUT}:
            parts[tie][2].append(node)
    for given in (INPUT, graph.output):
        parts.pop(id(group[given]), None)
    return [
        TextTie(graph.shapes[writers[0].name][1], tuple(writers), tuple(passing), tuple(readers))
        for writers, passing, readers in parts.values()
    ]
