"""Wider networks of text: their residual stream, MLPs and attentions, and gates for plain MLPs."""

from __future__ import annotations

import random
from dataclasses import replace
from math import sqrt

import numpy as np

from nas.frozen import frozen
from nas.graph import Graph, Node
from nas.layers import Attention, Embedding, Layer, Linear, Product, RMSNorm
from nas.morphisms.channels import NEW, Index, MorphismError, refuse_many
from nas.morphisms.morphism import Morphism
from nas.morphisms.sites import choose, inserted, known, possible, replaced, seed_from, unused
from nas.morphisms.text.tensor_sources import Growth, Taken, more, resized, spread
from nas.morphisms.text.text_ties import (
    ACTIVATIONS,
    attentions,
    check_text,
    heads_of,
    hidden,
    streams,
    tie_of,
    wider_width,
)


@frozen
class WidenStream(Morphism):
    """Gives a residual stream new features: all writers leave them at zero, all readers weigh them at random.

    Zeros do not change the sum of squares in a norm, but its mean is over D features instead of d. With
    ε' = ε·d/D the root is √(d/D) times what it was, and γ' = γ·√(d/D) takes that back (γ: Gesmundo and Maile
    2023, whose norm has no ε; both: Wang et al., "LEMON", ICLR 2024). The gradient of γ' is √(D/d) times
    that of γ. New features of γ start at √(d/D), where those of an untrained norm are now. Zeros on both
    sides would have no gradient.
    """

    node: str
    """A Linear, an Embedding or Experts that write into the stream."""
    features: int
    """Number of features after the edit."""
    seed: int

    def edit(self, graph: Graph) -> Growth:
        tie = tie_of(graph, streams(graph), self.node, "a residual stream")
        if self.features <= tie.width:
            raise MorphismError(f"{self.node} has {tie.width} features, not fewer than {self.features}")
        part, source = tie.width / self.features, more(tie.width, self.features)
        layers: dict[str, Layer] = {}
        for node in tie.writers:
            layer = node.layer
            if isinstance(layer, Embedding):
                layers[node.name] = replace(layer, features=self.features)
            elif isinstance(layer, Linear):  # experts are as wide as what they read
                layers[node.name] = layer.widened(self.features)
        taken = resized(
            graph,
            puts_out=dict.fromkeys([node.name for node in tie.writers], source),
            reads=dict.fromkeys([node.name for node in tie.readers], source),
            new_out=0.0,
        )
        scale = sqrt(part)
        for node in tie.passing:
            if isinstance(node.layer, RMSNorm):
                layers[node.name] = replace(node.layer, epsilon=node.layer.epsilon * part)
                taken[f"{node.name}.weight"] = Taken(source, factor=scale, gradient=1 / scale, new_rows=scale)
        return Growth(replaced(graph, layers), taken, seed=self.seed)

    @classmethod
    def propose(cls, graph: Graph, rng: random.Random) -> WidenStream:
        tie = choose(rng, streams(graph), "residual stream")
        return cls(tie.writers[0].name, wider_width(tie, rng), seed_from(rng))


@frozen
class WidenMLP(Morphism):
    """Gives an MLP new hidden features with random weights, of all its branches, read with zeros.

    The new columns of the output projection learn in the first step, the new features in the second
    (Gesmundo and Maile 2023; with copies instead of zeros: Chen et al., "Net2Net", ICLR 2016).
    """

    node: str
    """A Linear that writes hidden features."""
    features: int
    """Number of features after the edit."""
    seed: int

    def edit(self, graph: Graph) -> Growth:
        tie = tie_of(graph, hidden(graph), self.node, "hidden features")
        if self.features <= tie.width:
            raise MorphismError(f"{self.node} has {tie.width} features, not fewer than {self.features}")
        wider = {node.name: node.layer.widened(self.features) for node in tie.writers}
        source = more(tie.width, self.features)
        taken = resized(
            graph,
            puts_out=dict.fromkeys(wider, source),
            reads=dict.fromkeys([node.name for node in tie.readers], source),
            new_read=0.0,
        )
        return Growth(replaced(graph, wider), taken, seed=self.seed)

    @classmethod
    def propose(cls, graph: Graph, rng: random.Random) -> WidenMLP:
        tie = choose(rng, hidden(graph), "MLP")
        return cls(tie.writers[0].name, wider_width(tie, rng), seed_from(rng))


@frozen
class GateMLP(Morphism):
    """Multiplies an activation by a new Linear of what its own Linear reads: W = 0 and b = 1 at first.

    0·x + 1 is 1, so nothing changes, bit for bit. As W has a gradient at once, it needs no random values.
    """

    node: str
    """The activation."""

    def edit(self, graph: Graph) -> Growth:
        check_text(graph)
        (read,) = _gateable(graph, self.node)
        gate, width = unused(graph, "gate"), graph.shapes[self.node][1]
        nodes = [
            Node(f"{gate}.linear", Linear(width, bias=True), (read,)),
            Node(f"{gate}.product", Product(), (self.node, f"{gate}.linear")),
        ]
        constants = {f"{gate}.linear.weight": 0.0, f"{gate}.linear.bias": 1.0}
        return Growth(inserted(graph, self.node, nodes), constants=constants)

    @classmethod
    def propose(cls, graph: Graph, rng: random.Random) -> GateMLP:
        check_text(graph)
        return cls(choose(rng, possible(graph, _gateable), "plain MLP"))


def _gateable(graph: Graph, name: str) -> tuple[str, ...]:
    """The inputs of the Linear before a plain activation. Raises MorphismError if it cannot get a gate."""
    node = known(graph, name)
    above = graph.node.get(node.inputs[0])
    if not isinstance(node.layer, ACTIVATIONS) or above is None or not isinstance(above.layer, Linear):
        raise MorphismError(f"{name} is no activation of a Linear")
    if not all(isinstance(reader.layer, Linear) for reader in graph.readers[name]) or name == graph.output:
        raise MorphismError(f"{name} is not read by Linears alone; a gated MLP gets no second gate")
    return above.inputs


@frozen
class MoreHeads(Morphism):
    """Gives an attention new heads of the same width, whose outputs are read with zeros at first.

    Query head i reads group i·G // H. So new heads come either as whole groups, with keys and values of their
    own, behind the others, or in equal number into every group: else old heads would read other keys. The
    width of a head, and with it the scale 1/√w, stays (Gesmundo and Maile 2023).
    """

    node: str
    heads: int
    """Number of heads after the edit."""
    groups: int
    """Number of groups after the edit: as before, or such that each has as many heads as before."""
    seed: int

    def edit(self, graph: Graph) -> Growth:
        site = heads_of(graph, self.node)
        was = site.layer
        refuse_many(self.heads * site.width, self.node)
        queries = _queries(self.node, was, self.heads, self.groups)
        layers: dict[str, Layer] = {
            self.node: replace(was, heads=self.heads, groups=self.groups),
            site.query: graph.node[site.query].layer.widened(self.heads * site.width),
        }
        puts_out = {site.query: spread(queries, site.width)}
        if self.groups > was.groups:
            for name in (site.key, site.value):
                layers[name] = graph.node[name].layer.widened(self.groups * site.width)
                puts_out[name] = spread(more(was.groups, self.groups), site.width)
        reads = dict.fromkeys(site.readers, spread(queries, site.width))
        return Growth(replaced(graph, layers), resized(graph, puts_out, reads, new_read=0.0), seed=self.seed)

    @classmethod
    def propose(cls, graph: Graph, rng: random.Random) -> MoreHeads:
        """Adds one head to every group, or one group."""
        check_text(graph)
        sizes = [(name, *size) for name in attentions(graph) for size in _with_more_heads(graph, name)]
        node, heads, groups = choose(rng, sizes, "attention whose heads can become more")
        return cls(node, heads, groups, seed_from(rng))


def _with_more_heads(graph: Graph, name: str) -> list[tuple[int, int]]:
    """The next larger numbers of heads and of groups of an attention. All heads together stay at most as wide
    as what reads them writes, the stream, as in Vaswani et al., "Attention Is All You Need", NeurIPS 2017.
    Without this limit, narrow streams got 25 heads, and at equal operations networks trained at rates that
    differed by half (docs/search.md)."""
    site = heads_of(graph, name)
    heads, groups = site.layer.heads, site.layer.groups
    stream = min(graph.shapes[reader][1] for reader in site.readers)
    sizes = [(heads + groups, groups), (heads + heads // groups, groups + 1)]
    return [size for size in sizes if size[0] * site.width <= stream]


@frozen
class MoreGroups(Morphism):
    """Copies the keys and values of each group of an attention, so that fewer heads share them.

    Each copy gets the gradient of its own heads, so copies part without noise. Their gradients add up to that
    of the group before; how much of it each gets is not known, so their optimizer state begins anew.
    """

    node: str
    groups: int
    """Number of groups after the edit: a multiple of that before and a divisor of the number of heads."""

    def edit(self, graph: Graph) -> Growth:
        site = heads_of(graph, self.node)
        was = site.layer
        if self.groups <= was.groups or self.groups % was.groups or was.heads % self.groups:
            raise MorphismError(
                f"{self.node} has {was.heads} heads in {was.groups} groups, which cannot become {self.groups}"
            )
        layers: dict[str, Layer] = {self.node: replace(was, groups=self.groups)}
        taken: dict[str, Taken] = {}
        source = spread(np.repeat(np.arange(was.groups), self.groups // was.groups), site.width)
        for name in (site.key, site.value):
            layers[name] = graph.node[name].layer.widened(len(source))
            for tensor, copied in resized(graph, {name: source}, {}).items():
                taken[tensor] = replace(copied, gradient=None)
        return Growth(replaced(graph, layers), taken)

    @classmethod
    def propose(cls, graph: Graph, rng: random.Random) -> MoreGroups:
        check_text(graph)
        sites = [name for name in attentions(graph) if _finer(graph, name)]
        node = choose(rng, sites, "attention whose heads share keys")
        return cls(node, rng.choice(_finer(graph, node)))


def _queries(name: str, was: Attention, heads: int, groups: int) -> Index:
    """For each head of the child, the index of the parent's head."""
    each = was.heads // was.groups
    if groups == was.groups and heads > was.heads and heads % groups == 0:
        old = np.arange(was.heads).reshape(groups, each)
        new = np.full((groups, heads // groups - each), NEW)
        return np.concatenate([old, new], axis=1).ravel()
    if groups > was.groups and heads == groups * each:
        return more(was.heads, heads)
    raise MorphismError(
        f"{name} has {was.heads} heads in {was.groups} groups; {heads} in {groups} add neither whole groups "
        "nor the same number of heads to each"
    )


def _finer(graph: Graph, name: str) -> list[int]:
    """The numbers of groups that the present ones can become."""
    layer = known(graph, name).layer
    assert isinstance(layer, Attention)
    return [
        groups
        for groups in range(2 * layer.groups, layer.heads + 1, layer.groups)
        if layer.heads % groups == 0
    ]
