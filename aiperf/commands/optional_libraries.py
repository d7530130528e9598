"""Libraries that are extras: without one, the error says which to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from aiperf.errors import MissingExtra

OWN = ("aiperf", "nas", "launch", "analysis")
"""Packages of this program: if one of them is missing, the installation is damaged."""
RUN = ("torch", "safetensors", "sklearn", "PIL", "psutil")
"""Modules that the extra `run` installs."""


def refuse_no_run() -> None:
    """Raises MissingExtra if the modules for training are not installed.

    The modules are searched for and not imported: a run imports them only in its worker processes, whose
    tracebacks the user would have to find in a log.
    """
    for library in RUN:
        if find_spec(library) is None:
            raise MissingExtra(library, "run")


@contextmanager
def extra(name: str) -> Iterator[None]:
    """A context for imports that need the extra with this name. Raises MissingExtra for a missing library."""
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library in ("", *OWN) or error.name != library:  # of a part, it is installed, and not whole
            raise
        raise MissingExtra(library, name) from None
