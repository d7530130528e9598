"""Libraries that are extras: without one, the error says which to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from aiperf.errors import MissingExtra

OWN = ("aiperf", "nas", "launch", "analysis")
RUN = ("torch", "safetensors", "sklearn", "PIL", "psutil")
"""Modules of the extra run."""


def refuse_no_run() -> None:
    """Raises MissingExtra where nothing can be trained.

    The modules are looked for, not imported: a run imports them in processes of its own, whose tracebacks
    would stand in a log.
    """
    for library in RUN:
        if find_spec(library) is None:
            raise MissingExtra(library, "run")


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
