"""What the master of an examination and the other ranks say to each other."""

from __future__ import annotations

from dataclasses import dataclass

from aiperf.wire.layout import Place
from aiperf.wire.messages import FromGroup, ToGroup


@dataclass(frozen=True)
class AskClock(ToGroup):
    """What time of day is it there?"""


@dataclass(frozen=True)
class ToldClock(FromGroup):
    wall_seconds: float


@dataclass(frozen=True)
class LookAtHost(ToGroup):
    probe: str
    """A file in the run directory that holds `nonce`."""
    nonce: str
    data_path: str
    trains: bool = True
    """Whether torch and the images are needed there."""


@dataclass(frozen=True)
class OpenDoor(ToGroup):
    """To the leader of a group: where can the others meet you?"""

    spans_hosts: bool


@dataclass(frozen=True)
class Door(FromGroup):
    host: str
    port: int


@dataclass(frozen=True)
class LookAtDevice(ToGroup):
    place: Place
    kind: str
    format: str
    host: str
    port: int
    """Of the leader's door; 0: the group is one rank."""
