"""Searches of other packages: which these are is said by what is installed, never by a record.

A package names its search as an entry point of the group "nas.searches", by the name that a configuration
gives it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nas.search.search import Search
from nas.search_names import SEARCHES_OF_OTHERS

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class SearchError(ValueError):
    """A search that is not installed, cannot be imported, or is none."""


def distribution_of(name: str) -> str:
    """The distribution that a search of this name came with. Raises SearchError."""
    entry = _entry(name)
    if entry.dist is None:
        raise SearchError(
            f"the search {name!r} ({entry.value}) belongs to no distribution; install it with pip"
        )
    return str(entry.dist.name)


def entry_of(name: str) -> str:
    """The entry point that names a search of another package, as "module:Class". Raises SearchError."""
    return _entry(name).value


def installed_search(name: str) -> type[Search]:
    """Raises SearchError."""
    entry = _entry(name)
    try:
        found = entry.load()
    except Exception as error:
        raise SearchError(f"the search {name!r} cannot be imported from {entry.value}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Search)):
        raise SearchError(f"the search {name!r}: {entry.value} is not a class derived from nas.search.Search")
    return found


def _entry(name: str) -> EntryPoint:
    """The entry point of that name. Raises SearchError if there is none, or two that differ."""
    from importlib.metadata import entry_points  # and with it the parsers of email

    found = list(entry_points(group=SEARCHES_OF_OTHERS, name=name))
    if not found:
        raise SearchError(f"the search {name!r} is not installed; install its package")
    if others := {entry.value for entry in found} - {found[0].value}:
        raise SearchError(
            f"two searches are named {name!r}: {found[0].value} and {min(others)}; uninstall one of them"
        )
    return found[0]
