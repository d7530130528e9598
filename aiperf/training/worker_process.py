"""A worker as a process of its own: the master or an MPI rank starts it and talks to it by a socket."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import socket
import sys
import threading
from multiprocessing.connection import Connection

from aiperf.device import Device, bind_place
from aiperf.errors import AiperfError, GroupBroken
from aiperf.host.child_process import die_with_parent
from aiperf.host.scheduler_warning import outlive
from aiperf.measuring.precision import format_rates
from aiperf.parallel.ddp import Ddp
from aiperf.parallel.parallel import Parallel, Solo
from aiperf.training.fabric import take_part
from aiperf.training.worker import Channel, Worker
from aiperf.wire.layout import Described, Place
from aiperf.wire.messages import Join, Refused, Setup, ToGroup, pack, unpack
from aiperf.wire.reports import FromGroup
from nas.record import decode, encode


class _SocketChannel:
    """One end of the socket pair to a master on this machine."""

    def __init__(self, file: int) -> None:
        self._connection = Connection(file)
        self._sending = threading.Lock()

    def send(self, message: FromGroup) -> None:
        """Sends a message whole; a lock keeps those of two threads apart."""
        with self._sending:
            self._connection.send_bytes(pack(message))

    def receive(self) -> ToGroup:
        """Waits for the next message. Raises EOFError when the other end is closed."""
        message: ToGroup = unpack(ToGroup, self._connection.recv_bytes())
        return message


def main() -> int:
    """Serves one run. The exit code is 1 for an error that the user sees, on stderr and, if the rank could
    still send, at the master. The process ends with its parent, so that no rank is left on a device."""
    outlive()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", type=int, required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--place", required=True, type=json.loads)
    options = parser.parse_args()
    place = decode(Place, options.place)
    die_with_parent()
    logging.basicConfig(format=f"%(asctime)s rank {place.rank} %(levelname)s %(message)s", level=logging.INFO)
    channel = _SocketChannel(options.socket)
    try:
        setup = channel.receive()
        assert isinstance(setup, Setup), setup
        take_part(setup, place, options.device, channel.send, channel.receive)
        device = bind_place(options.device, place)
        parallel = _join(setup, channel, device, place)
        Worker(setup, channel, device, place, parallel).serve()
        parallel.close()
    except (AiperfError, EOFError) as error:
        print(error or "the master is gone", file=sys.stderr, flush=True)
        if not isinstance(error, (EOFError, GroupBroken)):
            with contextlib.suppress(OSError):  # nobody may listen any more
                channel.send(Refused(place.rank, socket.gethostname(), str(error)))
        os._exit(1)  # a collective that will never end must not hold this up
    return 0


def describe(kind: str, place: str) -> object:
    """The record of the device that a worker at this place (JSON) binds. Raises AiperfError if it has
    none."""
    where = decode(Place, json.loads(place))
    device = bind_place(kind, where)
    found = Described(
        rank=where.rank,
        device=device.name,
        kind=device.kind,
        memory_bytes=device.memory_bytes,
        formats=format_rates(device),
        sensors=device.sensors,
        note=device.note,
    )
    return encode(found)


def _join(setup: Setup, channel: Channel, device: Device, place: Place) -> Parallel:
    """Joins the ranks of the group. The leader says where to meet, and the master passes it on. Raises
    GroupBroken if the run ends before all have met."""
    if len(place.group) == 1:
        return Solo()

    def hear() -> Join:
        message = channel.receive()
        if not isinstance(message, Join):  # Quit, or Disband where another rank of the group died
            raise GroupBroken(f"{type(message).__name__} came before the group had met")
        return message

    return Ddp(device, place, setup.config.training.compression, channel.send, hear)


if __name__ == "__main__":
    sys.exit(main())
