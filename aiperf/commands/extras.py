"""Libraries that are extras: without one, the error says which to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aiperf.errors import MissingExtra

__all__ = ["extra"]

OWN = ("aiperf", "nas", "launch", "analysis")


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Around the imports that need the extra of this name. Raises MissingExtra for a library not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library in ("", *OWN):
            raise
        raise MissingExtra(library, name) from None
