"""What a user can fix: each error is one line that says what, where and the remedy."""

from __future__ import annotations


class AiperfError(Exception):
    """The command prints it as one line and exits with 1."""


class ConfigError(AiperfError, ValueError):
    """A configuration or an option that cannot be."""


class DataError(AiperfError):
    """A data set that is absent, unreadable or not what it should be."""


class JournalError(AiperfError):
    """A journal that cannot be read, written or continued."""


class WorldError(AiperfError):
    """Processes, devices or hosts that are not as the run needs them."""


class NotReady(WorldError):
    """A group that died or fell silent before the clock started: what it left in its logs may tell why."""


class UnseenDevices(WorldError):
    """Devices that a driver lists and torch does not see."""

    def __init__(self, seen: str, remedy: str) -> None:
        super().__init__(f"{seen}; {remedy}")
        self.seen, self.remedy = seen, remedy


class StoppedEarly(AiperfError):
    """A run that was asked to stop before its clock started: there is nothing to show yet."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason} before the clock started")
        self.reason = reason


def installation(*extras: str) -> str:
    """What to type where these extras are missing. No index has this program; its checkout has."""
    return f"pip install '.[{','.join(extras)}]' in a checkout of aiperf-hpc"


class MissingExtra(AiperfError):
    """A library that is an extra, and is not installed."""

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(f"{library} is not installed; remedy: {installation(extra)}")


class GroupBroken(WorldError):
    """A rank left its group in the middle of a collective."""
