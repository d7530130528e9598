"""Layers of other packages: which these are is said by what is installed, never by a record."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points


@cache
def import_layers_of_others() -> None:
    """Imports what installed packages name as entry points of the group `nas.layers`. Raises ImportError."""
    for entry in entry_points(group="nas.layers"):
        try:
            entry.load()
        except Exception as error:
            raise ImportError(f"the layers of {entry.value} cannot be imported: {error}") from error
