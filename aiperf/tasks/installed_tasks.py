"""Tasks of other packages: which these are is said by what is installed, never by a record.

A package names its task as an entry point of the group "aiperf.tasks", by each value of `data.name` that is
of it, as "module:VALUE".
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from aiperf.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "aiperf.tasks"


def installed_names() -> list[str]:
    """Every `data.name` of an installed task; nothing is imported for this."""
    from importlib.metadata import (
        entry_points,  # and with it the parsers of email: only where one is asked for
    )

    return sorted({entry.name for entry in entry_points(group=GROUP)})


@cache
def installed(name: str) -> object:
    """What an installed package registered for this `data.name`; None where nobody has. Raises ConfigError
    for one that cannot be imported, and for two packages with one name."""
    entry = _entry(name)
    if entry is None:
        return None
    try:
        return entry.load()
    except Exception as error:
        raise ConfigError(
            f"the task of data.name {name!r} cannot be imported from {entry.value}: {error}; correct or "
            "uninstall its package"
        ) from error


def distribution_of(name: str) -> str:
    """The distribution that an installed task came with. Raises ConfigError for a task that none has, and for
    two packages with one name."""
    entry = _entry(name)
    if entry is None or entry.dist is None:
        raise ConfigError(f"the task of data.name {name!r} belongs to no distribution; install it with pip")
    return str(entry.dist.name)


def _entry(name: str) -> EntryPoint | None:
    from importlib.metadata import entry_points

    found = list(entry_points(group=GROUP, name=name))
    if others := {entry.value for entry in found} - {entry.value for entry in found[:1]}:
        raise ConfigError(
            f"two tasks are named {name!r}: {found[0].value} and {min(others)}; uninstall one of them"
        )
    return found[0] if found else None
