"""What a configuration may name: searches and tuners. Reading one takes their names, not their classes."""

from __future__ import annotations

OWN_SEARCHES = ("evolution", "foresight", "random", "bayesian")
"""Those of this program; `nas.search.SEARCHES` has their classes."""

TUNERS = ("none", "nni", "optuna")
"""The name of a library is also that of its extra; `nas.tuning.TUNERS` has their classes."""

SEARCHES_OF_OTHERS = "nas.searches"
"""The group of the entry points by which other packages name theirs."""


def search_names() -> list[str]:
    """Of all searches that there are here; nothing is imported for this. A name of this program's own stands
    for that one alone."""
    from importlib.metadata import entry_points  # and with it the parsers of email: only for this list

    others = {entry.name for entry in entry_points(group=SEARCHES_OF_OTHERS)}
    return [*OWN_SEARCHES, *sorted(others.difference(OWN_SEARCHES))]
