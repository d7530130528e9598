"""How networks of text grow: function-preserving edits of transformers with RMSNorm and rotary positions."""

from __future__ import annotations

from collections.abc import Mapping

from nas.morphisms.morphism import Morphism
from nas.morphisms.text.blocks import DeepenGated, DeepenPlain, Nonlinearity
from nas.morphisms.text.upcycle import Upcycle
from nas.morphisms.text.widen_text import GateMLP, MoreGroups, MoreHeads, WidenMLP, WidenStream

__all__ = [
    "TEXT_MIX",
    "DeepenGated",
    "DeepenPlain",
    "GateMLP",
    "MoreGroups",
    "MoreHeads",
    "Nonlinearity",
    "Upcycle",
    "WidenMLP",
    "WidenStream",
]

TEXT_MIX: Mapping[type[Morphism], float] = {
    # Nothing else raises the width of the stream, which bounds what later layers can tell apart, so it
    # has the share of a trunk in `MIX`. No search of text has measured these shares yet.
    WidenStream: 0.25,
    WidenMLP: 0.20,
    DeepenGated: 0.15,
    DeepenPlain: 0.10,
    MoreHeads: 0.15,
    GateMLP: 0.05,
    MoreGroups: 0.05,
    # Many weights and small products: of a modest share the search can afford to find out that it is none.
    Upcycle: 0.05,
}
"""How often a search should try each: shares of all tries. No image has a place for them."""
