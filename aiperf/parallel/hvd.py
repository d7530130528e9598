"""The ranks of a group joined by Horovod, over MPI.

Horovod averages gradients in hooks on the parameters and in the optimizer, so the network is not wrapped. It
starts an all-reduce as soon as a gradient is ready, in an order on which its ranks agree in the background.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from aiperf.device import Device
from aiperf.errors import MissingExtra, WorldError
from aiperf.parallel.parallel import Parallel, make_step

# Messages and names of the exceptions that Horovod raises if another rank has left.
LOST_RANK = ("Horovod has been shut down", "HorovodInternalError")


class Hvd(Parallel):
    """Data parallelism by Horovod."""

    def __init__(self, device: Device, compression: str, comm: Any) -> None:
        """Joins the group. `comm` is mpi4py's communicator of its ranks. Raises WorldError if Horovod uses
        another MPI."""
        self._hvd = _horovod()
        self._hvd.init(comm=comm)
        self._device = device
        self._compression = getattr(self._hvd.Compression, compression)
        self.rank, self.ranks = int(self._hvd.rank()), int(self._hvd.size())
        if (self.rank, self.ranks) != (comm.rank, comm.size):
            raise WorldError(
                f"Horovod has {self.ranks} ranks where the group has {comm.size}: it was built for a "
                f"different MPI than the one mpi4py found; rebuild it in this environment"
            )

    def wrap(
        self, network: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[nn.Module, torch.optim.Optimizer]:
        """All ranks start with the weights of the leader; the state that the optimizer already has is taken
        over."""
        # Horovod sends only contiguous tensors. A gradient has the memory layout of its parameter, and the
        # optimizer's state must have the same.
        network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        for state in optimizer.state.values():
            state.update({name: values.contiguous() for name, values in state.items()})
        parameters = list(network.named_parameters())
        self._hvd.broadcast_parameters(parameters, root_rank=0)
        wrapped = self._hvd.DistributedOptimizer(
            optimizer, named_parameters=parameters, compression=self._compression
        )
        wrapped.state.update(optimizer.state)  # because `wrapped` is a new optimizer of the same kind
        return network, wrapped

    def step(self, optimizer: Any, scaler: torch.amp.GradScaler, clip: float) -> None:
        optimizer.synchronize()  # the all-reduce must end before the scaler looks for overflows
        with optimizer.skip_synchronize():
            make_step(optimizer, scaler, clip)

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        summed: torch.Tensor = self._hvd.allreduce(values.detach().contiguous(), op=self._hvd.Sum)
        return summed

    def is_of_another(self, error: Exception) -> bool:
        return any(words in f"{type(error).__name__}: {error}" for words in LOST_RANK)

    def close(self) -> None:
        self._hvd.shutdown()


def _horovod() -> Any:
    try:
        import horovod.torch as hvd
    except ImportError:
        raise MissingExtra("horovod", "horovod") from None
    return hvd
