"""Errors that a user can fix. Each message is one line that says what is wrong, where, and what to do."""

from __future__ import annotations


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


def installation(*extras: str) -> str:
    """The command that installs these extras. It names a checkout, because the program is on no package
    index."""
    return f"pip install '.[{','.join(extras)}]' in a checkout of aiperf-hpc"


class MissingExtra(AiperfError):
    """A library that belongs to an extra is not installed."""

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(f"{library} is not installed; remedy: {installation(extra)}")


class GroupBroken(WorldError):
    """A rank left its group during a collective, so the group must be restarted."""
