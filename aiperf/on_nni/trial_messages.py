"""Messages between NNI's tuner and trials and the master, each one JSON object. They are exchanged only
between processes of one user on one host (`refuse_stranger`), and are read with a limit on their size."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from multiprocessing.connection import Client, Connection
from typing import Any

from aiperf.errors import WorldError
from aiperf.host.other_users import NotOurs, peer
from aiperf.journal.run_files import RunFiles
from aiperf.wire.layout import Place
from nas.bounded import LARGEST_BYTES, read_text
from nas.frozen import frozen
from nas.record import decode, encode


@frozen
class Word:
    """A message over the master's socket."""


@frozen
class TrialWanted(Word):
    """The tuner's request for the next trial."""


@frozen
class TrialDescribed(Word):
    """The answer to `TrialWanted`: the parameters that NNI shows for the trial and passes to its process."""

    parameters: Mapping[str, Any]
    """Names and values, which must include what `trial_process` needs: the trial and the run."""


@frozen
class Over(Word):
    """The answer to `TrialWanted` if there are no further trials."""


@frozen
class ProcessBegan(Word):
    """The first message of a trial's process."""

    trial: int
    """Number of the trial, as NNI passed it on."""


@frozen
class Given(Word):
    """The answer to `ProcessBegan`: the rank as which the process works. After it, master and worker exchange
    the messages of `aiperf.wire.messages`."""

    place: Place
    device: str
    """The device as `--device` names it."""


def call(files: RunFiles) -> Connection:
    """A connection to the master of a run on this machine. Raises WorldError if there is no such run."""
    try:
        address = read_text(files.socket_address)
        connection = Client(address, "AF_UNIX")
        assert isinstance(connection, Connection)
        refuse_stranger(connection)
    except OSError as error:
        raise WorldError(f"{files.directory}: no run under NNI is active here ({error.strerror})") from None
    except NotOurs as error:
        raise WorldError(
            f"{files.socket_address}: {error}; start the run again in another directory"
        ) from None
    return connection


def refuse_stranger(connection: Connection) -> None:
    """Raises NotOurs if the process at the other end belongs to another user."""
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        peer(same)


def tell(connection: Connection, word: Word) -> None:
    """Sends a message. Raises OSError if the other side has closed the connection."""
    connection.send_bytes(json.dumps(encode(word)).encode())


def hear(connection: Connection) -> Word:
    """Waits for the next message. Raises EOFError if the other side has closed the connection, ValueError for
    what is no message, and OSError for more bytes than a message has."""
    return decode(Word, json.loads(connection.recv_bytes(LARGEST_BYTES)))
