"""How two ranks on a network know each other, and every message of each other, by a secret of the run.

A rank says hello, with a proof that it knows the secret; whoever cannot gets no answer. The master answers
with a proof of its own. Both proofs hold a number that was drawn for this connection, and the keys of the two
directions follow from them, so nothing that was recorded can be sent again. Each frame then has a MAC (RFC
2104, with SHA-256) over its number in its direction, its header and its content: a frame that is changed,
repeated, left out or moved ends the connection. Nothing is encrypted.
"""

from __future__ import annotations

import hmac
import struct

from nas.frozen import frozen

MAGIC = b"aiperf/1"
"""First bytes of a hello: the program and the version of what follows."""
NONCE_BYTES = MAC_BYTES = 32  # a MAC is a digest of SHA-256
HELLO = struct.Struct(f"<8sII{NONCE_BYTES}s{MAC_BYTES}s")
"""Magic, rank, number of ranks, a random number, MAC."""
ANSWER = struct.Struct(f"<{NONCE_BYTES}s{MAC_BYTES}s")
"""A random number, MAC."""
COUNTER = struct.Struct("<Q")


class NoProof(Exception):
    """Who sent this does not know the secret. The message says what is wrong with it."""


@frozen
class Introduction:
    """Who a rank says it is, proved by the secret."""

    rank: int
    size: int
    """Number of ranks that it was started with."""


def hello(secret: bytes, who: Introduction, nonce: bytes) -> bytes:
    """The first bytes of a rank."""
    fields = HELLO.pack(MAGIC, who.rank, who.size, nonce, bytes(MAC_BYTES))[:-MAC_BYTES]
    return fields + _mac(secret, b"hello", fields)


def introduced(secret: bytes, heard: bytes) -> Introduction:
    """Who has said hello. Raises NoProof."""
    magic, rank, size, _, mac = HELLO.unpack(heard)
    if magic != MAGIC:
        raise NoProof("it does not speak as a rank of this version")
    if not hmac.compare_digest(mac, _mac(secret, b"hello", heard[:-MAC_BYTES])):
        raise NoProof("it does not know the secret of this run")
    return Introduction(rank, size)


def answer(secret: bytes, heard: bytes, nonce: bytes) -> bytes:
    """The master's answer to a hello."""
    return nonce + _mac(secret, b"answer", heard + nonce)


def check_answer(secret: bytes, said: bytes, heard: bytes) -> None:
    """Checks the answer to a hello. Raises NoProof."""
    nonce, mac = ANSWER.unpack(heard)
    if not hmac.compare_digest(mac, _mac(secret, b"answer", said + nonce)):
        raise NoProof("whoever listens there does not know the secret of this run")


class Seal:
    """The MACs of the frames in one direction of a connection, the first one first."""

    def __init__(self, secret: bytes, direction: bytes, said: bytes, answered: bytes) -> None:
        """`direction` is b"to master" or b"from master"; `said` and `answered` are the first bytes of both
        ends."""
        self._keyed = hmac.new(_mac(secret, direction, said + answered), digestmod="sha256")
        self._count = 0

    def mac(self, head: bytes, data: bytes | memoryview) -> bytes:
        """The MAC of the next frame."""
        keyed = self._keyed.copy()
        keyed.update(COUNTER.pack(self._count) + head)
        keyed.update(data)
        self._count += 1
        return keyed.digest()


def _mac(secret: bytes, purpose: bytes, content: bytes) -> bytes:
    """A MAC that is of no use for another purpose."""
    return hmac.digest(secret, len(purpose).to_bytes(1, "little") + purpose + content, "sha256")
