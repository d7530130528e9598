"""A rank that trains in its own process instead of in a child, because Horovod needs MPI where it trains.

Horovod's background thread calls MPI at the same time as the rank's own threads, so MPI must allow that. A
rank that dies ends its group, and the whole job unless MPI is fault-tolerant.
"""

from __future__ import annotations

import logging
import socket
from pathlib import Path
from typing import Any

from aiperf.device import Device, bind_place
from aiperf.errors import WorldError
from aiperf.journal.run_files import RunFiles
from aiperf.parallel.hvd import Hvd
from aiperf.parallel.parallel import Parallel, Solo
from aiperf.ranks.link import Link, mpi_module
from aiperf.training.fabric import take_part
from aiperf.training.worker import Channel, Worker
from aiperf.wire.layout import Place
from aiperf.wire.messages import Setup


def train_in_rank(link: Link, channel: Channel, place: Place, kind: str) -> None:
    """Runs a worker in the rank itself, from Setup to Quit. Raises WorldError, and what a worker raises."""
    setup = channel.receive()
    assert isinstance(setup, Setup), setup
    log = RunFiles(Path(setup.directory)).log(socket.gethostname(), place.rank)
    log.parent.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(filename=log, format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    take_part(setup, place, kind, channel.send, channel.receive)
    device = bind_place(kind, place)
    parallel = _join(link, setup, device, place)
    try:
        Worker(setup, channel, device, place, parallel).serve()
    finally:  # Horovod must not call MPI after MPI has ended; this also informs the other ranks of the group
        parallel.close()


def _join(link: Link, setup: Setup, device: Device, place: Place) -> Parallel:
    if len(place.group) == 1:
        return Solo()
    if not link.threads:
        raise WorldError(
            "this MPI does not allow several threads (MPI_THREAD_MULTIPLE), which Horovod needs; "
            "use --backend ddp, or another MPI"
        )
    world: Any = mpi_module().COMM_WORLD
    group = world.Create_group(world.Get_group().Incl(list(place.group)))
    return Hvd(device, setup.config.training.compression, group)
