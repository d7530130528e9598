"""Messages to all ranks, forwarded from rank to rank along two trees, so that the master sends only a few.

A rank that forwards messages in one tree is a leaf of the other, so a single rank that is dead or hangs cuts
no other rank off. Ranks known to be dead are sent nothing; those of a lost group get messages from the master
alone. If two fail at once, the next beat states how many messages there were, and a rank asks the sender of
the beat for those that it missed.

On the wire each message begins with a byte with which no JSON begins (`shipping` uses the bytes 0 and 1),
followed by the number of the last message to all, and by a serial number that grows with every message and
every beat.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence

from aiperf.ranks.link import Link, Received
from aiperf.wire.layout import MasterBeat, ToAll
from aiperf.wire.messages import ToGroup, pack, unpack
from nas.frozen import frozen

FAN_OUT = 8
"""Number of ranks to which a rank forwards a message, in each tree: five levels reach 32,768 ranks."""
HEAD = struct.Struct("<BIQ")
DIRECT, TO_ALL, BEAT, MISSING = 2, 3, 4, 5
"""Kinds of messages: one for a single group, to be handled after the message to all with that number; a
message to all; a beat; and a request for the messages to all after that number."""


def children(rank: int, size: int, avoid: Collection[int], fan_out: int = FAN_OUT) -> tuple[int, ...]:
    """The ranks to which `rank` forwards a message from rank 0 to all `size` ranks, each at most once.

    Ranks in `avoid`, which never contains rank 0, are leaves below rank 0. It has a connection to each of
    them; if their host is cut off, Open MPI ends the whole job for another rank's attempt to make one.
    """
    avoided = sorted(avoid)
    kept = size - len(avoided)  # ranks that forward messages
    if rank in avoid or rank >= size:
        return ()
    position = rank - bisect_right(avoided, rank)
    first = [each for each in range(fan_out * position + 1, fan_out * (position + 1) + 1) if each < kept]
    # The second tree is the first one with the order of the ranks above 0 turned round.
    mirrored = (kept - position) % kept
    second = [
        kept - each for each in range(fan_out * mirrored + 1, fan_out * (mirrored + 1) + 1) if each < kept
    ]
    own = dict.fromkeys(_at(each, avoided) for each in (*first, *second) if each != position)
    return (*own, *(avoided if rank == 0 else ()))


def _at(position: int, avoided: Sequence[int]) -> int:
    """The rank at a position among those that are not avoided."""
    for each in avoided:
        if each > position:
            break
        position += 1
    return position


def after(number: int, data: bytes) -> bytes:
    """Wraps a message for one group that must be handled after the message to all with that number."""
    return HEAD.pack(DIRECT, number, 0) + data if number else data


def split(data: bytes) -> tuple[int, bytes]:
    """The number that `after` wrote before a message for one group, 0 without one, and the message."""
    if data[:1] != bytes([DIRECT]):
        return 0, data
    return HEAD.unpack_from(data)[1], data[HEAD.size :]


def goes_to_all(data: bytes) -> bool:
    """Whether a message travels along the trees, or requests one that does."""
    return data[:1] in (bytes([TO_ALL]), bytes([BEAT]), bytes([MISSING]))


class Announcer:
    """The master's end of the trees. It keeps all messages, to answer ranks that missed one."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._said: dict[int, bytes] = {}
        self._serial = 0
        """Number of messages and beats that were sent."""

    @property
    def number(self) -> int:
        """Number of the last message to all; 0 if there was none."""
        return len(self._said)

    def say(self, message: ToGroup, avoid: Collection[int], incarnations: Mapping[str, int]) -> None:
        """Sends a message to all. `incarnations` are those of the groups that were restarted, by leader."""
        self._said[self.number + 1] = self._send(
            TO_ALL, self.number + 1, ToAll(_sorted(avoid), _sorted(self._link.failed), incarnations, message)
        )

    def beat(self, avoid: Collection[int]) -> None:
        self._send(BEAT, self.number, ToAll(_sorted(avoid), _sorted(self._link.failed), {}, MasterBeat()))

    def answer(self, received: Received) -> None:
        """Answers a rank's request for messages that it missed."""
        _answer(self._link, received, self._said)

    def _send(self, kind: int, number: int, content: ToAll) -> bytes:
        self._serial += 1
        data = HEAD.pack(kind, number, self._serial) + pack(content)
        for rank in children(0, self._link.size, content.avoid):
            self._link.send(rank, 0, data)
        return data


@frozen
class Numbered:
    """A message to all, with its number."""

    number: int
    """Number of the message; for a beat, that of the last message before it."""
    content: ToAll


class Hearer:
    """A rank's end of the trees: it forwards each message once, and requests those that did not arrive."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._heard: dict[int, bytes] = {}
        self._complete = 0
        """All messages up to this number have arrived."""
        self._serial = 0
        """The highest serial number that has arrived; its message has the newest `_avoid`."""
        self._avoid: tuple[int, ...] = ()
        """Ranks that forward nothing, as far as this rank knows."""
        self._dead: tuple[int, ...] = ()
        """Ranks that are dead, as far as this rank knows."""

    def take(self, received: Received) -> Numbered | None:
        """Forwards a message that goes to all, and returns it; None if it arrived before, or is a request."""
        kind, number, serial = HEAD.unpack_from(received.data)
        if kind == MISSING:
            _answer(self._link, received, self._heard)
            return None
        if number in self._heard if kind == TO_ALL else serial <= self._serial:
            return None
        content: ToAll = unpack(ToGroup, received.data[HEAD.size :])
        if serial > self._serial:
            self._serial, self._avoid, self._dead = serial, content.avoid, content.dead
        if kind == TO_ALL:
            self._heard[number] = received.data
        for rank in children(self._link.rank, self._link.size, self._avoid):
            if rank != received.source and rank not in self._dead:
                self._link.send(rank, 0, received.data)
        while self._complete + 1 in self._heard:
            self._complete += 1
        if self._complete < number:
            self._link.send(received.source, 0, HEAD.pack(MISSING, self._complete, 0))
        return Numbered(number, content)


def _answer(link: Link, question: Received, known: Mapping[int, bytes]) -> None:
    """Sends the messages to all after the number that a rank stated, as far as they are known here."""
    number = HEAD.unpack_from(question.data)[1]
    for each in sorted(known):
        if each > number:
            link.send(question.source, 0, known[each])


def _sorted(avoid: Collection[int]) -> tuple[int, ...]:
    return tuple(sorted(avoid))
