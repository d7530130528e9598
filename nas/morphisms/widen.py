"""More channels: new ones that are read with zeros at first, or copies that share their readers' weights.

Copies: Chen, Goodfellow, Shlens, "Net2Net", ICLR 2016, but with uneven shares instead of noise: equal
copies would get equal gradients for ever.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from nas.graph import Graph, once
from nas.morphisms.carry import Edit
from nas.morphisms.channels import NEW, Channels, MorphismError
from nas.morphisms.morphism import Morphism
from nas.morphisms.sites import choose, replaced, rounded, seed_from
from nas.morphisms.ties import Tie, ties
from nas.weights import generator

FACTORS = (1.5, 2.0)


@dataclass(frozen=True)
class Widen(Morphism):
    """Gives a convolution or dense layer new output channels with random weights, read with zeros."""

    node: str
    channels: int
    """Number of channels after the edit."""
    seed: int

    def edit(self, graph: Graph) -> Edit:
        return _edit(graph, _alone(graph), self.node, self.channels, self.seed, _unread)

    @classmethod
    def propose(cls, graph: Graph, rng: random.Random) -> Widen:
        return cls(*_proposal(graph, _alone(graph), rng))


@dataclass(frozen=True)
class WidenTrunk(Morphism):
    """As `Widen`, for all the layers whose outputs additions and gates tie to one width."""

    node: str
    """One of these layers."""
    channels: int
    seed: int

    def edit(self, graph: Graph) -> Edit:
        return _edit(graph, _trunks(graph), self.node, self.channels, self.seed, _unread)

    @classmethod
    def propose(cls, graph: Graph, rng: random.Random) -> WidenTrunk:
        return cls(*_proposal(graph, _trunks(graph), rng))


@dataclass(frozen=True)
class WidenByCopies(Morphism):
    """Gives a convolution or dense layer copies of some of its output channels."""

    node: str
    channels: int
    """Number of channels after the edit; at most twice as many as before."""
    seed: int

    def edit(self, graph: Graph) -> Edit:
        return _edit(graph, _copyable(_alone(graph)), self.node, self.channels, self.seed, _copied)

    @classmethod
    def propose(cls, graph: Graph, rng: random.Random) -> WidenByCopies:
        return cls(*_proposal(graph, _copyable(_alone(graph)), rng, most=2))


@dataclass(frozen=True)
class WidenTrunkByCopies(Morphism):
    """As `WidenByCopies`, for all the layers whose outputs additions and gates tie to one width."""

    node: str
    """One of these layers."""
    channels: int
    seed: int

    def edit(self, graph: Graph) -> Edit:
        return _edit(graph, _copyable(_trunks(graph)), self.node, self.channels, self.seed, _copied)

    @classmethod
    def propose(cls, graph: Graph, rng: random.Random) -> WidenTrunkByCopies:
        return cls(*_proposal(graph, _copyable(_trunks(graph)), rng, most=2))


Filling = Callable[[int, int, "np.random.Generator"], Channels]
"""A function of the old and the new number of channels: which channel copies which."""


def _unread(old: int, new: int, rng: np.random.Generator) -> Channels:
    source = np.concatenate([np.arange(old), np.full(new - old, NEW)])
    return Channels(source, (source >= 0).astype(np.float64))


def _copied(old: int, new: int, rng: np.random.Generator) -> Channels:
    twice = rng.permutation(old)[: new - old]
    # In 256ths, so that both shares are exact numbers.
    kept = rng.integers(160, 225, new - old) / 256
    share = np.ones(new)
    share[twice], share[old:] = kept, 1 - kept
    return Channels(np.concatenate([np.arange(old), twice]), share)


def _edit(graph: Graph, sites: Sequence[Tie], name: str, channels: int, seed: int, filling: Filling) -> Edit:
    for tie in sites:
        if name in tie.producers:
            break
    else:
        raise MorphismError(f"{name!r} cannot be widened so")
    if channels <= tie.width or channels % tie.groups:
        raise MorphismError(
            f"{name} has {tie.width} channels in {tie.groups} groups, which cannot become {channels}"
        )
    child = replaced(graph, {node: graph.node[node].layer.widened(channels) for node in tie.producers})
    old, new = tie.width // tie.groups, channels // tie.groups
    if filling is _copied and new > 2 * old:
        raise MorphismError(f"{old} channels make {2 * old} with their copies, not {new}")

    def wider() -> dict[str, Channels]:
        """Grouped convolutions keep runs of channels apart; each run grows by itself."""
        rng = generator(seed, name)
        runs = [filling(old, new, rng) for _ in range(tie.groups)]
        source = [np.where(run.source < 0, NEW, run.source + place * old) for place, run in enumerate(runs)]
        whole = Channels(np.concatenate(source), np.concatenate([run.share for run in runs]))
        return dict.fromkeys(tie.producers, whole)

    return Edit(child, wider, seed=seed)


@once
def _alone(graph: Graph) -> list[Tie]:
    return [tie for tie in ties(graph) if len(tie.producers) == 1]


@once
def _trunks(graph: Graph) -> list[Tie]:
    return [tie for tie in ties(graph) if len(tie.producers) > 1]


def _copyable(sites: Sequence[Tie]) -> list[Tie]:
    """The ties without those in which a dropout, in training, would make copies of a channel differ."""
    return [tie for tie in sites if not tie.torn]


def _proposal(
    graph: Graph, sites: Sequence[Tie], rng: random.Random, most: float = inf
) -> tuple[str, int, int]:
    """The arguments of a widening by one of FACTORS, of a convolution where there is one."""
    sites = [tie for tie in sites if _widths(tie, most)]
    images = [tie for tie in sites if len(graph.shapes[tie.producers[0]]) == 3]
    tie = choose(rng, images or sites, "width that can grow so")
    return tie.producers[0], rng.choice(_widths(tie, most)), seed_from(rng)


def _widths(tie: Tie, most: float) -> list[int]:
    widths = {rounded(factor * tie.width, tie.groups) for factor in FACTORS}
    return sorted(width for width in widths if width <= most * tie.width)
