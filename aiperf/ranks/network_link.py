"""Messages between ranks on several hosts, over TCP: started by torchrun, or each by a command of its own.

Only rank 0 listens, at one port of one address, until all ranks have connected; then no port is open any
more. Every other rank has one connection, to rank 0, which passes on what one rank sends to another. So a
firewall needs one open port, and a dead rank cuts no other one off. A rank proves itself by the secret of the
run before anything is read from it but the few bytes of the proof (`sealing`).
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import logging
import math
import os
import secrets
import selectors
import socket
import struct
import time
from collections import deque
from typing import Any

from aiperf.errors import WorldError
from aiperf.ranks.launcher import SECRET, TORCHRUN, LaunchedRank
from aiperf.ranks.link import Received
from aiperf.ranks.meeting import JOIN_SECONDS, MeetingPlace, listening_at
from aiperf.ranks.patience import Patience
from aiperf.ranks.sealing import (
    ANSWER,
    HELLO,
    MAC_BYTES,
    NONCE_BYTES,
    Introduction,
    NoProof,
    Seal,
    answer,
    check_answer,
    hello,
    introduced,
)
from aiperf.ranks.sockets import MOST_BYTES, READ_BYTES, NoRank, SocketLink, Way

log = logging.getLogger(__name__)

HEAD = struct.Struct("<QQQQ")
"""Header of each frame: the length of its content, its destination, its source, its tag. The MAC follows,
then the content."""
FRAME_BYTES = HEAD.size + MAC_BYTES
SMALL_BYTES = 1 << 16
"""Longest content that is copied behind its header, so that both leave in one packet."""
TRY_SECONDS = 5.0
"""Time limit in seconds for one attempt to connect."""
PROOF_SECONDS = 10.0
"""Time limit in seconds for whoever has connected to say hello."""
ANSWERED_SECONDS = 60.0
"""Time limit in seconds from the hello of a rank to the proof that it is no record. Ranks that start together
on few cores are slow."""
PAUSES = (0.05, 1.0)
"""Time in seconds between two attempts, first and longest."""
REFUSALS = 5
"""Number of attempts that may be refused, because a master that was very busy refuses a rank as late."""
MOST_STRANGERS = 64
"""Maximum number of connections without a hello; further ones wait in the system."""
CROWDED_SECONDS = 3.0
"""The time limit for a hello, in seconds, while others wait."""
MOST_NAMED = 16
"""Maximum number of addresses whose refused connections are reported, each once."""
CLOSE_SECONDS = 5.0
"""Time limit in seconds for the master to close a connection after the rank at the other end has left."""


class NetworkLink(SocketLink):
    """Connection of one rank to all others, over the network."""

    launcher = TORCHRUN

    def __init__(self, launched: LaunchedRank, meeting: MeetingPlace) -> None:
        """Listens on rank 0; connects to it on every other rank. Raises WorldError if that is not
        possible."""
        super().__init__(launched)
        self._has_launcher = launched.launcher == TORCHRUN
        self._meeting = meeting
        self._strangers: dict[Way, float] = {}
        """Connections that have not proved to be of a rank, the oldest first, and when they were made."""
        self._crowded = False
        """Whether there are so many of them that no further one is accepted."""
        self._introduced: dict[Way, tuple[int, float]] = {}
        """Connections whose hello may be the record of an earlier one, with the rank and when it came."""
        self._seals: dict[Way, tuple[Seal, Seal]] = {}
        """What seals the frames to the other end of a connection, and what they come with."""
        self._late: dict[int, deque[tuple[int, int, bytes]]] = {}
        """On the master, source, tag and content of messages to ranks that have not connected, by rank."""
        self._named: set[str] = set()
        """Addresses of which a refused connection was reported."""
        if self.rank == 0:
            self._listening = listening_at(meeting, self.size)
            self._selector.register(self._listening, selectors.EVENT_READ)
        else:
            self._join()

    @property
    def orphaned(self) -> bool:
        """Whether the launcher is gone. A rank that a command of its own has started has none: it ends with
        the connection to the master."""
        return self._has_launcher and super().orphaned

    def send(self, rank: int, tag: int, data: bytes) -> None:
        assert len(data) <= MOST_BYTES, f"a message of {len(data)} bytes"
        with self._turn:
            self._pass_on(rank, self.rank, tag, data)

    def abandon(self) -> None:
        """Nothing: the system closes what this process has open."""

    def finalize(self) -> None:
        if self.rank and not (way := self._ways[0]).closed:
            # If it closed at once, with something unread, the system might drop its last message.
            way.socket.settimeout(CLOSE_SECONDS)
            with contextlib.suppress(OSError):
                way.socket.shutdown(socket.SHUT_WR)
                while way.socket.recv(READ_BYTES):
                    pass
        if self._listening is not None:
            self._listening.close()
        super().finalize()

    # Frames

    def _pass_on(self, to: int, source: int, tag: int, data: bytes) -> None:
        """Sends a message on its way: from the master to its rank, from all others to the master."""
        way = self._ways.get(0 if self.rank else to)
        if way is None:
            self._late.setdefault(to, deque()).append((source, tag, data))
        elif not way.closed:
            head = HEAD.pack(len(data), to, source, tag)
            head += self._seals[way][0].mac(head, data)
            parts = (head + data,) if len(data) <= SMALL_BYTES else (head, data)
            way.leaving.extend(map(memoryview, parts))
            self._push(way)

    def _take(self, way: Way, begin: int) -> int | None:
        if way not in self._seals:
            return self._introduce(way, begin)
        if len(way.coming) - begin < FRAME_BYTES:
            return None
        length, to, source, tag = HEAD.unpack_from(way.coming, begin)
        if length > (most := MOST_BYTES if way.rank is not None else 0):
            raise NoRank(f"it sent a message of {length} bytes; the limit is {most}")
        start = begin + FRAME_BYTES
        end: int = start + length
        if len(way.coming) < end:
            return None
        head, mac = bytes(way.coming[begin : begin + HEAD.size]), way.coming[begin + HEAD.size : start]
        with memoryview(way.coming) as coming, coming[start:end] as content:
            data = bytes(content)
        if not hmac.compare_digest(mac, self._seals[way][1].mac(head, data)):
            raise NoRank("it sent a message that was not made with the secret of this run, or not now")
        if way.rank is None:
            self._welcome(way)
        elif not self._may_come(way, to, source):
            raise NoRank(f"it sent a message of rank {source} to rank {to}")
        elif to == self.rank:
            self._arrived.append(Received(source, tag, data))
        else:
            self._pass_on(to, source, tag, data)
        return end

    def _may_come(self, way: Way, to: int, source: int) -> bool:
        """Whether a message from one rank to another may arrive on this connection."""
        if self.rank:
            return to == self.rank and source < self.size
        return source == way.rank and to < self.size and to != source

    # How ranks become known

    def _join(self) -> None:
        """Connects to rank 0. Raises WorldError after JOIN_SECONDS, or if it is refused several times."""
        patience, pause, refusals = Patience(JOIN_SECONDS), PAUSES[0], 0
        while True:
            try:
                way = self._reached()
                break
            except NoProof as error:
                reason, refusals = str(error), refusals + 1
                remedy = f"give all ranks of a run one secret ({SECRET}), and each a RANK of its own"
            except OSError as error:
                reason = error.strerror or str(error)
                remedy = "start rank 0 there, and check MASTER_ADDR, MASTER_PORT and the network"
            failure = f"rank {self.rank} cannot reach rank 0 at {self._meeting}: {reason}; {remedy}"
            if refusals == REFUSALS or patience.is_over:
                raise WorldError(failure) from None
            patience.report(failure)
            time.sleep(pause)
            pause = min(2 * pause, PAUSES[1])
        way.socket.setblocking(False)
        way.rank, self._ways[0] = 0, way
        self._selector.register(way.socket, selectors.EVENT_READ, way)

    def _reached(self) -> Way:
        """A connection to rank 0, both ends of which know the secret. Raises OSError and NoProof."""
        meeting = self._meeting
        own = socket.create_connection((meeting.host, meeting.port), TRY_SECONDS)
        try:
            if own.getsockname() == own.getpeername():  # TCP can connect a port to itself
                raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            until = time.monotonic() + ANSWERED_SECONDS
            own.settimeout(ANSWERED_SECONDS)
            who = Introduction(self.rank, self.size)
            said = hello(meeting.secret, who, secrets.token_bytes(NONCE_BYTES))
            own.sendall(said)
            heard = _exactly(own, ANSWER.size, until)
            check_answer(meeting.secret, said, heard)
            seals = _seals(meeting.secret, said, heard)
            # An empty frame proves that the answer was heard, and another one that it was in time.
            head = HEAD.pack(0, 0, self.rank, 0)
            own.sendall(head + seals[0].mac(head, b""))
            head = HEAD.pack(0, self.rank, 0, 0)
            if not hmac.compare_digest(_exactly(own, FRAME_BYTES, until), head + seals[1].mac(head, b"")):
                raise NoProof("whoever listens there does not know the secret of this run")
            way = Way(own, _named(own.getpeername()))
        except BaseException:
            own.close()
            raise
        self._seals[way] = seals
        return way

    def _accept(self) -> None:
        assert self._listening is not None
        while len(self._strangers) < MOST_STRANGERS:
            try:
                other, address = self._listening.accept()
                other.setblocking(False)
                other.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError:  # nobody waits, it has ended meanwhile, or there is no room for a further file
                return
            way = Way(other, _named(address))
            self._strangers[way] = time.monotonic()
            self._selector.register(other, selectors.EVENT_READ, way)
        self._selector.unregister(self._listening)
        self._crowded = True

    def _introduce(self, way: Way, begin: int) -> int | None:
        """Takes the hello of a stranger, and answers it. Raises NoRank."""
        if len(way.coming) - begin < HELLO.size:
            return None
        heard = bytes(way.coming[begin : begin + HELLO.size])
        secret = self._meeting.secret
        try:
            who = introduced(secret, heard)
        except NoProof as error:
            raise NoRank(str(error)) from None
        if who.size != self.size:
            raise NoRank(f"it was started as one of {who.size} ranks, rank 0 as one of {self.size}")
        if not 0 < who.rank < self.size:
            raise NoRank(f"it was started as rank {who.rank}, which is no other rank of these {self.size}")
        self._refuse_second(who.rank)
        if len(self._introduced) + len(self._ways) >= self.size:  # or records would use up all open files
            self._refuse(next(iter(self._introduced)), "others said hello after it, and it said no more")
        answered = answer(secret, heard, secrets.token_bytes(NONCE_BYTES))
        del self._strangers[way]
        self._introduced[way] = who.rank, time.monotonic()
        self._seals[way] = _seals(secret, heard, answered)[::-1]
        way.leaving.append(memoryview(answered))
        self._push(way)
        return begin + HELLO.size

    def _welcome(self, way: Way) -> None:
        """A stranger has proved that it is a rank and no record of one. Raises NoRank."""
        rank, _ = self._introduced[way]
        self._refuse_second(rank)
        del self._introduced[way]
        way.rank, self._ways[rank] = rank, way
        self._pass_on(rank, 0, 0, b"")  # by which the rank knows that it has joined
        for message in self._late.pop(rank, ()):
            self._pass_on(rank, *message)
        if len(self._ways) == self.size - 1:
            self._stop_listening()

    def _refuse_second(self, rank: int) -> None:
        """Raises NoRank if this rank has connected before."""
        if (known := self._ways.get(rank)) is not None:
            raise NoRank(f"it was started as rank {rank}, as {known.process} was")

    def _stop_listening(self) -> None:
        """Closes the port, and the connections of whoever is no rank."""
        assert self._listening is not None
        if not self._crowded:
            self._selector.unregister(self._listening)
        self._crowded = False
        self._listening.close()
        self._listening = None
        for way in [*self._strangers, *self._introduced]:
            self._drop(way)

    # What the loop of sockets asks

    def _is_waiting(self) -> bool:
        return bool(self._late)

    def _pause(self) -> float:
        if self._crowded and len(self._strangers) < MOST_STRANGERS:
            return 0.0
        silent = next(iter(self._strangers.values()), math.inf) + self._patience
        _, since = next(iter(self._introduced.values()), (0, math.inf))
        return max(0.0, min(silent, since + ANSWERED_SECONDS) - time.monotonic())

    @property
    def _patience(self) -> float:
        return CROWDED_SECONDS if self._crowded else PROOF_SECONDS

    def _keep_up(self) -> None:
        now = time.monotonic()
        for way in [way for way, since in self._strangers.items() if since + self._patience <= now]:
            self._refuse(way, f"it did not prove to be a rank within {self._patience:.0f} s")
        for way in [way for way, (_, since) in self._introduced.items() if since + ANSWERED_SECONDS <= now]:
            self._refuse(way, f"it did not answer within {ANSWERED_SECONDS:.0f} s")
        if self._crowded and len(self._strangers) < MOST_STRANGERS:
            assert self._listening is not None
            self._crowded = False
            self._selector.register(self._listening, selectors.EVENT_READ)

    def _most_bytes(self, way: Way) -> int:
        return READ_BYTES if way in self._seals else HELLO.size - len(way.coming)

    def _refuse(self, way: Way, fault: str) -> None:
        """Closes the connection. A rank that is known is dead from then on; a stranger is reported once per
        address, so that many of them cannot fill a log."""
        address = way.process.rpartition(":")[0]
        if way.rank is not None:
            log.error("rank %d closed the connection of %s: %s", self.rank, _who(way), fault)
            self._note_end(way)
        elif address not in self._named and len(self._named) < MOST_NAMED:
            self._named.add(address)
            log.error("rank %d refused a connection of %s: %s", self.rank, way.process, fault)
        self._drop(way)

    def _note_end(self, way: Way) -> None:
        """Notes a death: on the master, of a rank that was not asked to quit; elsewhere, of the master."""
        if way.rank is not None and not self.dismissed:
            self.failed |= {way.rank}

    def _drop(self, way: Way) -> None:
        super()._drop(way)
        self._strangers.pop(way, None)
        self._introduced.pop(way, None)
        self._seals.pop(way, None)


def _seals(secret: bytes, said: bytes, answered: bytes) -> tuple[Seal, Seal]:
    """The seals of the frames to the master and from it, after what both ends have said."""
    return Seal(secret, b"to master", said, answered), Seal(secret, b"from master", said, answered)


def _exactly(connected: socket.socket, number: int, until: float) -> bytes:
    """The next bytes of a connection. Raises NoProof if it ends before, and TimeoutError."""
    found = b""
    while len(found) < number:
        if (left := until - time.monotonic()) <= 0:  # else one byte a minute would hold a rank for an hour
            raise TimeoutError("timed out")
        connected.settimeout(left)
        try:
            part = connected.recv(number - len(found))
        except ConnectionError:
            part = b""
        if not part:
            raise NoProof("it closed the connection without an answer, and its output says why")
        found += part
    return found


def _named(address: Any) -> str:
    """The other end of a connection, for messages."""
    return f"{address[0]}:{address[1]}"


def _who(way: Way) -> str:
    return f"rank {way.rank} ({way.process})"
