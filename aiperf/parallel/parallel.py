"""What the ranks of a group do together while they train one trial."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

NUMBER_BYTES = 8  # of a whole number that a group can sum


class Parallel(Protocol):
    """Data parallelism inside one group. Every method is called by all ranks, in the same order."""

    rank: int
    """Position in the group; 0 leads it."""
    ranks: int
    wraps_network: bool
    """Whether the network that `wrap` returns is another one, whose backward pass also averages."""

    def wrap(
        self, network: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Both such that the backward pass also averages the gradients over the group."""

    def step(self, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler, clip: float) -> None:
        """`make_step` with the averaged gradients."""

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """The element-wise sum over the group, on every rank."""

    def total(self, *numbers: int) -> tuple[int, ...]:
        """The exact sums of whole numbers over the group, on every rank. Waits for the device."""

    def is_of_another(self, error: Exception) -> bool:
        """Whether an exception says that another rank is gone, and nothing of the work of this one."""

    def close(self) -> None:
        """Leaves the group."""


def lead(parallel: Parallel, number: int) -> int:
    """The leader's number, on every rank."""
    return parallel.total(number if parallel.rank == 0 else 0)[0]


def agree(parallel: Parallel, flag: bool) -> bool:
    """True on every rank if the flag is true on any."""
    return parallel.total(int(flag))[0] > 0


def everyone(parallel: Parallel, *numbers: int) -> list[tuple[int, ...]]:
    """What each rank gives, by rank, on every rank; all give as many numbers."""
    size = len(numbers)
    own = [0] * (size * parallel.ranks)
    own[parallel.rank * size : (parallel.rank + 1) * size] = numbers
    found = parallel.total(*own)
    return [found[first : first + size] for first in range(0, len(own), size)]


def gathered(parallel: Parallel, own: bytes) -> bytes:
    """The bytes of all ranks of the group, one after the other, on every rank. All give as many; up to the
    next multiple of eight they are filled with zeros."""
    size = -(-len(own) // NUMBER_BYTES)
    numbers = [0] * (size * parallel.ranks)
    for place in range(size):  # a place of its own for each rank: the sum with zeros is exact
        part = own[place * NUMBER_BYTES : (place + 1) * NUMBER_BYTES].ljust(NUMBER_BYTES, b"\0")
        numbers[parallel.rank * size + place] = int.from_bytes(part, "big", signed=True)
    return b"".join(number.to_bytes(NUMBER_BYTES, "big", signed=True) for number in parallel.total(*numbers))


def make_step(optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler, clip: float) -> None:
    """One step with the gradients that are there, left out when they overflowed. Waits for nothing.

    Where all of them together are longer than `clip`, they are shortened to it (Pascanu et al., "On the
    difficulty of training recurrent neural networks", ICML 2013); 0: never.
    """
    if clip:
        scaler.unscale_(optimizer)  # else the scale would be clipped
        clip_grad_norm_([each for group in optimizer.param_groups for each in group["params"]], clip)
    scaler.step(optimizer)


class Solo:
    """A group of one rank."""

    rank = 0
    ranks = 1
    wraps_network = False

    def wrap(
        self, network: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[nn.Module, torch.optim.Optimizer]:
        return network, optimizer

    def step(self, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler, clip: float) -> None:
        make_step(optimizer, scaler, clip)

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        return values

    def total(self, *numbers: int) -> tuple[int, ...]:
        return numbers

    def is_of_another(self, error: Exception) -> bool:
        return False

    def close(self) -> None:
        pass
