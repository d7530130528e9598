"""More heads, and more groups of keys and values."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np

from nas.graph import Graph
from nas.layers import Attention, Layer
from nas.morphisms.channels import NEW, Index, MorphismError, refuse_many
from nas.morphisms.morphism import Morphism
from nas.morphisms.sites import choose, known, replaced, seed_from
from nas.morphisms.text.tensor_sources import Growth, Taken, more, resized, spread
from nas.morphisms.text.text_ties import attentions, check_text, heads_of


@dataclass(frozen=True)
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
        node = choose(rng, attentions(graph), "attention whose heads can become more")
        layer = heads_of(graph, node).layer
        heads, groups = layer.heads, layer.groups
        sizes = [(heads + groups, groups), (heads + heads // groups, groups + 1)]
        return cls(node, *rng.choice(sizes), seed_from(rng))


@dataclass(frozen=True)
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
