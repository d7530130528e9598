"""Function-preserving edits of a graph and of its weights: the steps of the search."""

from __future__ import annotations

from collections.abc import Mapping

from nas.morphisms.base import Morphism
from nas.morphisms.channels import MorphismError
from nas.morphisms.deepen import DeepenBasic, DeepenBottleneck
from nas.morphisms.widen import Widen, WidenByCopies, WidenTrunk, WidenTrunkByCopies

__all__ = [
    "MIX",
    "DeepenBasic",
    "DeepenBottleneck",
    "Morphism",
    "MorphismError",
    "Widen",
    "WidenByCopies",
    "WidenTrunk",
    "WidenTrunkByCopies",
]

MIX: Mapping[type[Morphism], float] = {
    Widen: 0.20,
    WidenByCopies: 0.05,
    WidenTrunk: 0.07,
    WidenTrunkByCopies: 0.03,
    DeepenBottleneck: 0.15,
    DeepenBasic: 0.10,
}
"""How often the search should try each; a choice by weight, not of equal chances."""
