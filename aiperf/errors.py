"""Errors that a user can fix. Each message is one line that says what is wrong, where, and what to do."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator


class AiperfError(Exception):
    """An error that the user can fix. The command prints it as one line and exits with code 1."""


class ConfigError(AiperfError, ValueError):
    """A configuration or an option is not valid."""


class DataError(AiperfError):
    """A data set is absent, unreadable or not what it should be."""


class JournalError(AiperfError):
    """A journal cannot be read, written or continued."""


class WorldError(AiperfError):
    """Processes, devices or hosts do not meet the requirements of the run."""


class NotReady(WorldError):
    """A group died or was silent for too long before the clock started; its logs are kept, because they may
    show the reason."""


class UnseenDevices(WorldError):
    """A driver lists devices that torch does not see."""

    def __init__(self, seen: str, remedy: str) -> None:
        super().__init__(f"{seen}; {remedy}")
        self.seen, self.remedy = seen, remedy


class ForeignLibrary(AiperfError):
    """A library is imported from outside of this environment, and does not work there."""

    def __init__(self, seen: str, remedy: str) -> None:
        super().__init__(f"{seen}; {remedy}")
        self.seen, self.remedy = seen, remedy


class StoppedEarly(AiperfError):
    """A run was asked to stop before its clock started, so it has nothing to show."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason} before the clock started")
        self.reason = reason


def requirements(extra: str) -> Iterator[str]:
    """What the extra requires, as pip reads it: a name, a version and, if it depends on the machine, a
    marker. Nothing if the program was not installed by pip."""
    from importlib import metadata  # and with it the parsers of email, for no command but one that fails

    try:
        stated = metadata.requires("aiperf-hpc") or ()
    except metadata.PackageNotFoundError:
        return
    for line in stated:
        requirement, _, marker = line.partition(";")
        machine, found = re.subn(rf"(\s+and\s+)?extra == ['\"]{extra}['\"]", "", marker.strip())
        if found:
            yield f"{requirement.strip()}; {machine}" if machine else requirement.strip()


def installation(extra: str) -> str:
    """The command that adds an extra to this environment. It names libraries: pip adds those that are missing
    and leaves the program as it is, because jobs may be using it."""
    if libraries := list(requirements(extra)):
        return f"{shlex.quote(sys.executable)} -m pip install {shlex.join(libraries)}"
    return f"pip install '.[{extra}]' in a checkout of aiperf-hpc"


class MissingExtra(AiperfError):
    """A library that belongs to an extra is not installed."""

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(f"{library} is not installed; remedy: {installation(extra)}")


class GroupBroken(WorldError):
    """A rank left its group during a collective, so the group must be restarted."""
