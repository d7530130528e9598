"""What NNI's tuner and its trials say to the master, and what it answers: one JSON object each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection
from typing import Any

from aiperf.errors import WorldError
from aiperf.files import RunFiles
from aiperf.wire.layout import Place
from nas.bounded import read_text
from nas.record import decode, encode


@dataclass(frozen=True)
class Word:
    """Of a conversation with the master's socket."""


@dataclass(frozen=True)
class TrialWanted(Word):
    """By the tuner: what is the next trial?"""


@dataclass(frozen=True)
class TrialDescribed(Word):
    """The answer: what NNI is to show of the trial, and hands on to its process."""

    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Over(Word):
    """The answer when no trial comes any more."""


@dataclass(frozen=True)
class ProcessBegan(Word):
    """By the process of a trial: here I am."""

    trial: int


@dataclass(frozen=True)
class Given(Word):
    """The answer: as which rank it works. Then master and worker speak as they always do."""

    place: Place
    device: str


def call(files: RunFiles) -> Connection:
    """A conversation with the master of a run on this machine. Raises WorldError: there is none."""
    try:
        address = read_text(files.socket_address)
        connection = Client(address, "AF_UNIX")
    except OSError as error:
        raise WorldError(f"{files.directory}: no run under NNI is active here ({error.strerror})") from None
    assert isinstance(connection, Connection)
    return connection


def tell(connection: Connection, word: Word) -> None:
    connection.send_bytes(json.dumps(encode(word)).encode())


def hear(connection: Connection) -> Word:
    """Raises EOFError when the other side is gone."""
    return decode(Word, json.loads(connection.recv_bytes()))
