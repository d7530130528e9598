"""The ranks of a group joined by Horovod, over MPI: the rank itself trains.

Horovod's background thread calls MPI while the rank's own threads do, so MPI must allow that. A rank
that dies takes its group with it, and the job, unless MPI is fault-tolerant.
"""

from __future__ import annotations

import logging
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from aiperf.device import Device
from aiperf.errors import MissingExtra, WorldError
from aiperf.files import RunFiles
from aiperf.layout import Place
from aiperf.link import Link
from aiperf.messages import Setup
from aiperf.parallel import Parallel, Solo
from aiperf.worker import Channel, Worker, bind_place

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["Hvd", "train_in_rank"]

# What Horovod raises where a rank left, and what it says.
LOST_RANK = ("Horovod has been shut down", "HorovodInternalError")


class Hvd:
    """Data parallelism by Horovod."""

    def __init__(self, device: Device, compression: str, comm: MPI.Comm) -> None:
        """`comm` joins the ranks of the group. Raises WorldError."""
        self._hvd = _horovod()
        self._hvd.init(comm=comm)
        self._device = device
        self._compression = getattr(self._hvd.Compression, compression)
        self.rank, self.ranks = int(self._hvd.rank()), int(self._hvd.size())
        if (self.rank, self.ranks) != (comm.rank, comm.size):
            raise WorldError(
                f"Horovod has {self.ranks} ranks where the group has {comm.size}: it was built for another "
                "MPI than mpi4py found; build it in this environment"
            )

    def wrap(
        self, network: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[nn.Module, torch.optim.Optimizer]:
        # Horovod sends contiguous tensors only; a gradient is laid out as its parameter, and the momentum
        # must be as well.
        network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        for state in optimizer.state.values():
            state["momentum_buffer"] = state["momentum_buffer"].contiguous()
        parameters = list(network.named_parameters())
        self._hvd.broadcast_parameters(parameters, root_rank=0)
        wrapped = self._hvd.DistributedOptimizer(
            optimizer, named_parameters=parameters, compression=self._compression
        )
        wrapped.state.update(optimizer.state)  # it is a new optimizer of the same kind
        return network, wrapped

    def step(self, optimizer: Any, scaler: torch.amp.GradScaler) -> None:
        optimizer.synchronize()  # before the scaler looks for overflows
        with optimizer.skip_synchronize():
            scaler.step(optimizer)

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        summed: torch.Tensor = self._hvd.allreduce(values.detach().contiguous(), op=self._hvd.Sum)
        return summed

    def total(self, *numbers: int) -> tuple[int, ...]:
        values = torch.tensor(numbers, dtype=torch.int64, device=self._device.torch)
        return tuple(self.sum(values).tolist())

    def is_of_another(self, error: Exception) -> bool:
        return any(words in f"{type(error).__name__}: {error}" for words in LOST_RANK)

    def close(self) -> None:
        self._hvd.shutdown()


def train_in_rank(link: Link, channel: Channel, place: Place, kind: str) -> None:
    """The life of a worker in the rank itself. Raises WorldError, and what a worker raises."""
    setup = channel.receive()
    assert isinstance(setup, Setup), setup
    log = RunFiles(Path(setup.directory)).log(socket.gethostname(), place.rank)
    log.parent.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(filename=log, format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    device = bind_place(kind, place)
    parallel = _join(link, setup, device, place)
    try:
        Worker(setup, channel, device, place, parallel).serve()
    finally:  # it must not call MPI any more when MPI ends; the others of the group hear of it, too
        parallel.close()


def _join(link: Link, setup: Setup, device: Device, place: Place) -> Parallel:
    if len(place.group) == 1:
        return Solo()
    if not link.threads:
        raise WorldError(
            "this MPI does not allow several threads (MPI_THREAD_MULTIPLE), which Horovod needs; "
            "use --backend ddp, or another MPI"
        )
    comm: Any = link.comm
    comm = comm.Create_group(comm.Get_group().Incl(list(place.group)))
    return Hvd(device, setup.config.training.compression, comm)


def _horovod() -> Any:
    try:
        import horovod.torch as hvd
    except ImportError:
        raise MissingExtra("horovod", "horovod") from None
    return hvd
