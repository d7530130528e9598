"""What a configuration may name: searches and tuners. Reading one takes their names, not their classes."""

from __future__ import annotations

OWN_SEARCHES = ("evolution", "final", "foresight", "random", "bayesian")
"""Searches of this program; `nas.search.SEARCHES` has their classes."""

TUNERS = ("none", "nni", "optuna")
"""Tuners. The name of a library is also that of its extra; `nas.tuning.TUNERS` has their classes."""

SEARCHES_OF_OTHERS = "nas.searches"
"""Group of the entry points with which other packages register their searches."""

MOST_MORPHISMS = 1_000
"""Morphisms of one trial. This program's own searches make 64 at most, if a configuration does not ask for
more; the limit bounds the work on a journal of unknown origin."""


def search_names() -> list[str]:
    """Names of all installed searches; none is imported for this. A name of this program's own searches
    always means that search."""
    from importlib.metadata import entry_points  # and with it the parsers of email: only for this list

    others = {entry.name for entry in entry_points(group=SEARCHES_OF_OTHERS)}
    return [*OWN_SEARCHES, *sorted(others.difference(OWN_SEARCHES))]
