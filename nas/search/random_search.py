"""The baseline: the same walk through the same space, without selection."""

from __future__ import annotations

import random
from collections.abc import Sequence

from nas.search.search import Search
from nas.search.trials import Living


class RandomSearch(Search):
    """The parent is any of the living, whatever its error.

    All else is evolution's: the morphisms, the bounds, the weights that are carried, the age at which
    a trial dies. So what evolution gains over it is gained by selection alone, and no more weights are
    kept for it. A lineage is a random walk from the seed.
    """

    def choose(self, rng: random.Random, living: Sequence[Living]) -> Living:
        return rng.choice(living)
