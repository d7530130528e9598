"""Which morphism of which parent comes next: `ask` for a candidate, `tell` what became of it."""

from __future__ import annotations

from collections.abc import Mapping

from nas.search.bayesian import Bayesian
from nas.search.bounds import Size
from nas.search.evolution import Evolution, Final, Foresight
from nas.search.growth import typical
from nas.search.halving import Halving
from nas.search.installed_searches import SearchError, distribution_of, entry_of, installed_search
from nas.search.random_search import RandomSearch
from nas.search.search import Exhausted, Search, TooMuchWork
from nas.search.trials import Candidate, Observation
from nas.search_names import OWN_SEARCHES, search_names

__all__ = [
    "SEARCHES",
    "Bayesian",
    "Candidate",
    "Evolution",
    "Exhausted",
    "Final",
    "Foresight",
    "Halving",
    "Observation",
    "RandomSearch",
    "Search",
    "SearchError",
    "Size",
    "TooMuchWork",
    "distributions_of_search",
    "entry_of",
    "search_named",
    "search_names",
    "typical",
]

SEARCHES: Mapping[str, type[Search]] = dict(
    zip(OWN_SEARCHES, (Evolution, Final, Foresight, RandomSearch, Bayesian), strict=True)
)
"""Searches of this program, by the name in a configuration."""


def search_named(name: str) -> type[Search]:
    """The search of that name, of this program or of another package. Raises SearchError."""
    return SEARCHES[name] if name in SEARCHES else installed_search(name)


def distributions_of_search(name: str) -> tuple[str, ...]:
    """Distributions on whose versions its proposals depend, in addition to this program. Raises
    SearchError."""
    own = () if name in SEARCHES else (distribution_of(name),)
    return (*own, *search_named(name).libraries)
