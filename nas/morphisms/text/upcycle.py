"""An MLP becomes a mixture of equal experts."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np

from nas.frozen import frozen
from nas.graph import INPUT, Graph, Node
from nas.layers import GELU, Experts, Linear, Product, SiLU
from nas.morphisms.channels import MorphismError, refuse_many
from nas.morphisms.morphism import Morphism
from nas.morphisms.sites import choose, known, possible, seed_from
from nas.morphisms.text.tensor_sources import Growth, Taken
from nas.morphisms.text.text_ties import check_text

NUMBERS = (4, 8)  # of experts that are proposed: 8 in Mixtral, arXiv:2401.04088
CHOSEN = 2  # as there; of one alone the router would get no gradient


@frozen
class Upcycle(Morphism):
    """Copies an MLP to several experts, of which a router chooses a few at each position.

    The shares of the chosen add up to 1, so that equal experts make what one makes, whatever the router
    chooses. It starts at random, for one of zeros would send every position to the same experts (Komatsuzaki
    et al., "Sparse Upcycling", ICLR 2023; shares of the chosen alone: Jiang et al., "Mixtral").

    The gradients of all copies add up to that of the MLP. How much of it each gets depends on the positions
    that choose it and on their shares: it is no multiple, so the optimizer's state begins anew.
    """

    node: str
    """The last Linear of the MLP. The mixture takes its name."""
    experts: int
    chosen: int
    seed: int
    """Seed of the router's weights."""

    def edit(self, graph: Graph) -> Growth:
        check_text(graph)
        mlp = _mlp(graph, self.node)
        refuse_many(self.experts, self.node)
        mixture = Experts(self.experts, self.chosen, mlp.hidden, "gate" in mlp.linears)
        nodes = [
            Node(self.node, mixture, (mlp.read,)) if node.name == self.node else node
            for node in graph.nodes
            if node.name not in mlp.inside
        ]
        child = Graph(graph.input, tuple(nodes), graph, head=graph.head)
        taken, copies = {}, np.zeros(self.experts, np.intp)
        for tensor, name in mlp.linears.items():
            of = f"{name}.weight"
            rows, columns = map(np.arange, graph.weights[of])
            taken[f"{self.node}.{tensor}"] = Taken(rows, columns, copies, of, gradient=None)
        return Growth(child, taken, seed=self.seed)

    @classmethod
    def propose(cls, graph: Graph, rng: random.Random) -> Upcycle:
        check_text(graph)
        site = choose(rng, possible(graph, _mlp), "MLP that experts can be made of")
        return cls(site, rng.choice(NUMBERS), CHOSEN, seed_from(rng))


@frozen
class _MLP:
    """An MLP that experts can be made of."""

    read: str
    hidden: int
    linears: Mapping[str, str]
    """The Linear for each tensor of the experts: up, down and perhaps gate."""
    inside: frozenset[str]
    """Names of the nodes that the mixture replaces, in addition to the last Linear."""


def _mlp(graph: Graph, name: str) -> _MLP:
    """The one that ends with this Linear: down·GELU(up·x), or down·(SiLU(gate·x) ⊙ up·x), without a bias."""
    known(graph, name)
    inner = _own(graph, _linear(graph, name).inputs[0])
    inside, linears = [inner], {"down": name}
    if isinstance(inner.layer, GELU):
        linears["up"] = inner.inputs[0]
    elif isinstance(inner.layer, Product):
        sides = [_own(graph, side) for side in inner.inputs]
        first = 0 if isinstance(sides[0].layer, SiLU) else 1
        if not isinstance(sides[first].layer, SiLU):
            raise MorphismError(f"{inner.name} is no product with a SiLU")
        inside.append(sides[first])
        linears |= {"gate": sides[first].inputs[0], "up": sides[1 - first].name}
    else:
        raise MorphismError(f"{name} reads neither a GELU nor a product, as an expert does")
    before = [_linear(graph, linears[tensor]) for tensor in linears if tensor != "down"]
    inside += [_own(graph, node.name) for node in before]
    read = before[0].inputs[0]
    if any(node.inputs != (read,) for node in before):
        raise MorphismError(f"the Linears before {inner.name} read different tensors")
    if graph.shapes[name] != graph.shapes[read]:
        raise MorphismError(f"{name} is not as wide as {read}, which the MLP reads")
    hidden = graph.shapes[inner.name][1]
    return _MLP(read, hidden, linears, frozenset(node.name for node in inside))


def _linear(graph: Graph, name: str) -> Node:
    node = graph.node.get(name)
    if node is None or not isinstance(node.layer, Linear) or node.layer.bias:
        raise MorphismError(f"{name} is no Linear without a bias, as experts have them")
    return node


def _own(graph: Graph, name: str) -> Node:
    """The node, if only one layer reads it, and only once."""
    if name == INPUT or len(graph.readers[name]) != 1:
        raise MorphismError(f"{name} is not read by one layer alone")
    return graph.node[name]
