"""Which morphism of which parent comes next: `ask` for a candidate, `tell` what became of it."""

from __future__ import annotations

from collections.abc import Mapping

from nas.search.bayesian import Bayesian
from nas.search.bounds import Bounds, Size
from nas.search.evolution import Evolution, Foresight
from nas.search.halving import Halving
from nas.search.random_search import RandomSearch
from nas.search.search import Exhausted, Search
from nas.search.trials import Candidate, Observation

__all__ = [
    "SEARCHES",
    "Bayesian",
    "Bounds",
    "Candidate",
    "Evolution",
    "Exhausted",
    "Foresight",
    "Halving",
    "Observation",
    "RandomSearch",
    "Search",
    "Size",
]

SEARCHES: Mapping[str, type[Search]] = {
    "evolution": Evolution,
    "foresight": Foresight,
    "random": RandomSearch,
    "bayesian": Bayesian,
}
"""By the name a configuration gives them."""
