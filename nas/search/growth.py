"""Networks that grow into the operations of their round: a search is then among networks of like cost.

The rate at which a network trains depends most of all on its size. Where that is left to chance, so is the
score.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from nas.frozen import frozen
from nas.graph import Graph
from nas.layers import ShapeError
from nas.morphisms import MIX, Morphism, MorphismError
from nas.search.bounds import Bounds, Size

LONGEST_WALK = 64
"""Morphisms tried for one candidate: a narrow seed needs about fifteen for sixteen times its operations."""
TYPICAL_DRAWS = 5
"""Grown networks of which the typical one is the median."""
WALKS_TRIED, ROUNDS_TRIED = 64, 32
"""Walks tried, of which one in seven leads into bounds as narrow as those of the preset `digits`."""

Grown = tuple[tuple[Morphism, ...], Graph]
"""The morphisms in their order, and what they make of a graph."""


def edited(graph: Graph, rng: random.Random, kinds: Sequence[type[Morphism]]) -> Grown:
    """The graph after one morphism of each kind that has a place in it."""
    morphisms: tuple[Morphism, ...] = ()
    for kind in kinds:
        try:
            morphism = kind.propose(graph, rng)
            graph = morphism.apply(graph)
        except (MorphismError, ShapeError):  # no such neighbour
            continue
        morphisms = (*morphisms, morphism)
    return morphisms, graph


@frozen
class Growing:
    """How candidates grow from a seed of this size."""

    bounds: Bounds
    seed: Size
    mix: Mapping[type[Morphism], float]

    def walk(
        self,
        graph: Graph,
        rng: random.Random,
        round_: int,
        is_new: Callable[[Graph], bool] = lambda _: True,
        spend: Callable[[Graph], object] = lambda _: None,
    ) -> Grown | None:
        """Morphisms, one after the other, until the network is new and has the size of the round; one
        that leads beyond them is not made. None where this came to nothing. `spend` is given each network
        before it is edited."""
        walked: tuple[Morphism, ...] = ()
        for kind in rng.choices(tuple(self.mix), tuple(self.mix.values()), k=LONGEST_WALK):
            spend(graph)
            step, found = edited(graph, rng, [kind])
            size = Size(found)
            if not step or not size.below(self.bounds, self.seed, round_):
                continue
            graph, walked = found, (*walked, *step)
            if size.within(self.bounds, self.seed, round_) and is_new(graph):
                return walked, graph
        return None


def too_narrow(seed: Graph, bounds: Bounds, mix: Mapping[type[Morphism], float] = MIX) -> int | None:
    """The first round into whose bounds no walk from the seed leads, of some that were tried; None where each
    round has one. A block of layers may be too large a step for them."""
    growing, rng = Growing(bounds, Size(seed), mix), random.Random("too narrow")
    every = -(-bounds.growth_rounds // ROUNDS_TRIED) or 1
    for round_ in range(1, bounds.growth_rounds + 2, every) if bounds.growth_rounds else ():
        if not any(growing.walk(seed, rng, round_) for _ in range(WALKS_TRIED)):
            return round_
    return None


def typical(seed: Graph, bounds: Bounds, mix: Mapping[type[Morphism], float] = MIX) -> Graph:
    """A network of the size on which a run spends most of its operations: the seed, or one grown from it.

    It is the same for every random seed: what is chosen by its speed before the span does not depend on what
    the search will find. The seed itself is returned only if nothing grows, or if no walk leads into the
    bounds.
    """
    if not bounds.growth_rounds:
        return seed
    growing, rng = Growing(bounds, Size(seed), mix), random.Random("typical")
    walks = (growing.walk(seed, rng, bounds.growth_rounds + 1) for _ in range(WALKS_TRIED))
    drawn = islice((walked[1] for walked in walks if walked), TYPICAL_DRAWS)
    grown = sorted(drawn, key=lambda graph: graph.num_activations)
    return grown[len(grown) // 2] if grown else seed
