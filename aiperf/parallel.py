"""What the ranks of a group do together while they train one trial."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import nn

__all__ = ["Parallel", "Solo"]


class Parallel(Protocol):
    """Data parallelism inside one group."""

    rank: int
    """Position in the group; 0 leads it."""
    ranks: int

    def wrap(self, network: nn.Module) -> nn.Module:
        """The network whose backward pass also averages the gradients over the group."""

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """The element-wise sum over the group, on every rank."""

    def agree(self, flag: bool) -> bool:
        """True on every rank if the flag is true on any."""


class Solo:
    """A group of one rank."""

    rank = 0
    ranks = 1

    def wrap(self, network: nn.Module) -> nn.Module:
        return network

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        return values

    def agree(self, flag: bool) -> bool:
        return flag
