"""Function-preserving edits of a graph and of its weights: the steps of the search."""

from __future__ import annotations

from collections.abc import Mapping

from nas.morphisms.branches import BranchSplit, ConcatSkip, Skip, SqueezeExcite
from nas.morphisms.channels import MorphismError
from nas.morphisms.convolutions import EnlargeKernel, Ungroup
from nas.morphisms.deepen import DeepenBasic, DeepenBottleneck
from nas.morphisms.morphism import Morphism
from nas.morphisms.text import TEXT_MIX
from nas.morphisms.widen import Widen, WidenByCopies, WidenTrunk, WidenTrunkByCopies

__all__ = [
    "MIX",
    "TEXT_MIX",
    "BranchSplit",
    "ConcatSkip",
    "DeepenBasic",
    "DeepenBottleneck",
    "EnlargeKernel",
    "Morphism",
    "MorphismError",
    "Skip",
    "SqueezeExcite",
    "Ungroup",
    "Widen",
    "WidenByCopies",
    "WidenTrunk",
    "WidenTrunkByCopies",
]

MIX: Mapping[type[Morphism], float] = {
    # The width of a trunk bounds what all later layers can tell apart, and nothing else raises it: with a
    # tenth of all tries, as first supposed, a search from a narrow seed lost half its span waiting for one.
    WidenTrunk: 0.25,
    WidenTrunkByCopies: 0.05,
    Widen: 0.20,
    WidenByCopies: 0.05,
    DeepenBasic: 0.10,
    DeepenBottleneck: 0.08,
    EnlargeKernel: 0.07,
    SqueezeExcite: 0.07,
    Skip: 0.04,
    ConcatSkip: 0.03,
    BranchSplit: 0.03,
    Ungroup: 0.03,
}
"""How often a search should try each: shares of all tries. One with the share 0 is never tried."""
