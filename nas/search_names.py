"""What a configuration may name: searches and tuners. Reading one takes their names, not their classes."""

from __future__ import annotations

OWN_SEARCHES = ("evolution", "foresight", "random", "bayesian")
"""Searches of this program; `nas.search.SEARCHES` has their classes."""

TUNERS = ("none", "nni", "optuna")
"""Tuners. The name of a library is also that of its extra; `nas.tuning.TUNERS` has their classes."""

SEARCHES_OF_OTHERS = "nas.searches"
"""Group of the entry points with which other packages register their searches."""


def search_names() -> list[str]:
    """Names of all installed searches; none is imported for this. A name of this program's own searches
    always means that search."""
    from importlib.metadata import entry_points  # and with it the parsers of email: only for this list

    others = {entry.name for entry in entry_points(group=SEARCHES_OF_OTHERS)}
    return [*OWN_SEARCHES, *sorted(others.difference(OWN_SEARCHES))]
