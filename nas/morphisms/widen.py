"""More channels: new ones that are read with zeros at first, or copies that share their readers' weights.

Copies: Chen, Goodfellow, Shlens, "Net2Net", ICLR 2016, but with uneven shares instead of noise: equal
copies would get equal gradients for ever.
"""

from __future__ import annotations

import random
from functools import lru_cache
from typing import ClassVar

import numpy as np

from nas.frozen import frozen
from nas.graph import Graph
from nas.layers import Layer
from nas.morphisms.carry import Edit
from nas.morphisms.channels import NEW, Channels, MorphismError
from nas.morphisms.morphism import Morphism
from nas.morphisms.sites import FACTORS, choose, replaced, rounded, seed_from
from nas.morphisms.ties import Tie, ties
from nas.weights import generator


@frozen
class _Widening(Morphism):
    """What all widenings share."""

    trunk: ClassVar[bool]
    """Whether several layers are widened, which additions and gates tie to one width, and not one alone."""
    copies: ClassVar[bool]
    """Whether new channels are copies of old ones, at most one of each. If not, they are read with zeros."""

    node: str
    """The layer, or one of those that are tied."""
    channels: int
    """Number of channels after the edit."""
    seed: int

    @classmethod
    def ties(cls, graph: Graph) -> list[Tie]:
        """Those that can be widened so. A dropout, in training, would make copies of a channel differ."""
        return [
            tie
            for tie in ties(graph)
            if (len(tie.producers) > 1) is cls.trunk and not (cls.copies and tie.torn)
        ]

    def edit(self, graph: Graph) -> Edit:
        tie = next((tie for tie in self.ties(graph) if self.node in tie.producers), None)
        if tie is None:
            raise MorphismError(f"{self.node!r} cannot be widened so")
        if self.channels <= tie.width or self.channels % tie.groups:
            raise MorphismError(
                f"{self.node} has {tie.width} channels in {tie.groups} groups, "
                f"which cannot become {self.channels}"
            )
        child = replaced(
            graph, {node: _widened(graph.node[node].layer, self.channels) for node in tie.producers}
        )
        old, new = tie.width // tie.groups, self.channels // tie.groups
        if self.copies and new > 2 * old:
            raise MorphismError(f"{old} channels make {2 * old} with their copies, not {new}")
        filling = _copied if self.copies else _unread

        def wider() -> dict[str, Channels]:
            """Grouped convolutions keep runs of channels apart; each run grows by itself."""
            rng = generator(self.seed, self.node)
            runs = [filling(old, new, rng) for _ in range(tie.groups)]
            source = [
                np.where(run.source < 0, NEW, run.source + place * old) for place, run in enumerate(runs)
            ]
            whole = Channels(np.concatenate(source), np.concatenate([run.share for run in runs]))
            return dict.fromkeys(tie.producers, whole)

        return Edit(child, wider, seed=self.seed)

    @classmethod
    def propose(cls, graph: Graph, rng: random.Random) -> _Widening:
        """A widening by one of FACTORS, of a convolution where there is one."""
        sites = cls.ties(graph)
        if cls.copies:  # a narrow tie rounded up may be more than twice as wide
            sites = [tie for tie in sites if cls._widths(tie)]
        images = [tie for tie in sites if len(graph.shapes[tie.producers[0]]) == 3]
        tie = choose(rng, images or sites, "width that can grow so")
        return cls(tie.producers[0], rng.choice(cls._widths(tie)), seed_from(rng))

    @classmethod
    def _widths(cls, tie: Tie) -> list[int]:
        """Widths that can be proposed."""
        widths = {rounded(factor * tie.width, tie.groups) for factor in FACTORS}
        return sorted(width for width in widths if not cls.copies or width <= 2 * tie.width)


@frozen
class Widen(_Widening):
    """Gives a convolution or dense layer new output channels with random weights, read with zeros."""

    trunk, copies = False, False


@frozen
class WidenTrunk(_Widening):
    """As `Widen`, for all the layers whose outputs additions and gates tie to one width."""

    trunk, copies = True, False


@frozen
class WidenByCopies(_Widening):
    """Gives a convolution or dense layer copies of some of its output channels."""

    trunk, copies = False, True


@frozen
class WidenTrunkByCopies(_Widening):
    """As `WidenByCopies`, for all the layers whose outputs additions and gates tie to one width."""

    trunk, copies = True, True


# The layers of a trunk are alike, and the same widths are tried for many children.
@lru_cache(maxsize=1 << 12)
def _widened(layer: Layer, width: int) -> Layer:
    return layer.widened(width)


def _unread(old: int, new: int, rng: np.random.Generator) -> Channels:
    """The old channels, and new ones that are read with zeros."""
    source = np.concatenate([np.arange(old), np.full(new - old, NEW)])
    return Channels(source, (source >= 0).astype(np.float64))


def _copied(old: int, new: int, rng: np.random.Generator) -> Channels:
    """The old channels, and copies of some, drawn; both share what reads them, unevenly so that they part."""
    twice = rng.permutation(old)[: new - old]
    # From 5/8 to 7/8, in 256ths, so that both shares are exact numbers and add up to 1 without rounding.
    kept = rng.integers(160, 225, new - old) / 256
    share = np.ones(new)
    share[twice], share[old:] = kept, 1 - kept
    return Channels(np.concatenate([np.arange(old), twice]), share)
