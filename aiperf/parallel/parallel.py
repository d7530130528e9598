"""Collectives of the ranks of a group, which train one trial together."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from aiperf.device import Device

NUMBER_BYTES = 8  # bytes of a whole number that a group can sum


class Parallel(ABC):
    """Data parallelism inside one group. Every method must be called by all ranks, in the same order."""

    rank: int
    """Position in the group; 0 leads it."""
    ranks: int
    """Number of ranks in the group."""
    wraps_network = False
    """Whether `wrap` returns another module, whose backward pass also averages the gradients."""
    _device: Device

    @abstractmethod
    def wrap(
        self, network: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Network and optimizer, changed so that gradients are averaged over the group."""

    def wrap_again(self, network: nn.Module) -> nn.Module:
        """The wrapped network anew, for one whose backward pass may have failed; the weights are equal on
        all ranks. The network itself if `wrap` returns no other module."""
        return network

    def step(self, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler, clip: float) -> None:
        """Makes a step with the averaged gradients."""
        make_step(optimizer, scaler, clip)

    @abstractmethod
    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """The element-wise sum over the group, on every rank."""

    def total(self, *numbers: int) -> tuple[int, ...]:
        """The exact sums of whole numbers over the group, on every rank. Waits for the device."""
        return tuple(self.sum(torch.tensor(numbers, dtype=torch.int64, device=self._device.torch)).tolist())

    @abstractmethod
    def is_of_another(self, error: Exception) -> bool:
        """Whether an exception only means that another rank is gone, and no fault in the work of this one."""

    @abstractmethod
    def close(self) -> None:
        """Leaves the group."""


def lead(parallel: Parallel, number: int) -> int:
    """The leader's number, on every rank."""
    return parallel.total(number if parallel.rank == 0 else 0)[0]


def agree(parallel: Parallel, flag: bool) -> bool:
    """True on every rank if the flag is true on any."""
    return parallel.total(int(flag))[0] > 0


def everyone(parallel: Parallel, *numbers: int) -> list[tuple[int, ...]]:
    """The numbers of all ranks, by rank, on every rank. All ranks must pass equally many."""
    size = len(numbers)
    own = [0] * (size * parallel.ranks)
    own[parallel.rank * size : (parallel.rank + 1) * size] = numbers
    found = parallel.total(*own)
    return [found[first : first + size] for first in range(0, len(own), size)]


def gathered(parallel: Parallel, own: bytes) -> bytes:
    """The bytes of all ranks of the group, one after the other, on every rank. All ranks must pass equally
    many; they are padded with zeros to a multiple of eight."""
    size = -(-len(own) // NUMBER_BYTES)
    numbers = [0] * (size * parallel.ranks)
    for place in range(size):  # each rank has separate places, so the sum with the zeros of others is exact
        part = own[place * NUMBER_BYTES : (place + 1) * NUMBER_BYTES].ljust(NUMBER_BYTES, b"\0")
        numbers[parallel.rank * size + place] = int.from_bytes(part, "big", signed=True)
    return b"".join(number.to_bytes(NUMBER_BYTES, "big", signed=True) for number in parallel.total(*numbers))


def make_step(optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler, clip: float) -> None:
    """Makes one step with the current gradients, or leaves it out if they have overflowed. It does not wait
    for the device.

    If the norm of all gradients together exceeds `clip`, they are scaled down to it (Pascanu et al., "On the
    difficulty of training recurrent neural networks", ICML 2013); 0: never.
    """
    if clip:
        scaler.unscale_(optimizer)  # otherwise the scaled gradients would be clipped
        clip_grad_norm_([each for group in optimizer.param_groups for each in group["params"]], clip)
    scaler.step(optimizer)


class Solo(Parallel):
    """A group of one rank."""

    rank, ranks = 0, 1

    def wrap(
        self, network: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[nn.Module, torch.optim.Optimizer]:
        return network, optimizer

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        return values

    def total(self, *numbers: int) -> tuple[int, ...]:
        return numbers

    def is_of_another(self, error: Exception) -> bool:
        return False

    def close(self) -> None:
        pass
