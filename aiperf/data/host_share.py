"""What loaders use of a host: the cores that training leaves, and memory for batches."""

from __future__ import annotations

import os
from collections import deque
from math import prod
from weakref import finalize

import numpy as np
import torch
from torch import Tensor

from aiperf.host.cores import allowed_cores

KEPT = 8
"""Blocks that wait to be used again: those of some steps that are read ahead."""


def spare_cores(local_ranks: int) -> int:
    """Cores of this rank less one: those it is bound to, else its share of the host's."""
    host, bound = os.cpu_count() or 1, allowed_cores()
    return max(1, (bound if bound < host else host // local_ranks) - 1)


class ReusedMemory:
    """Tensors of one type on the host. A block returns when the last tensor of its memory is gone, and is
    used again: fresh pages cost more than what is written into them."""

    def __init__(self, dtype: torch.dtype, pinned: bool) -> None:
        self._dtype = dtype
        self._pinned = pinned
        self._free: deque[np.ndarray] = deque(maxlen=KEPT)

    def take(self, *shape: int) -> Tensor:
        """A tensor with any content. Torch itself keeps pinned memory, and waits for copies from it."""
        if self._pinned:
            return torch.empty(shape, dtype=self._dtype, pin_memory=True)
        needed = prod(shape) * self._dtype.itemsize
        try:  # not by its length: while one trial trains, another thread prepares the next
            block = self._free.pop()
        except IndexError:
            block = np.empty(0, np.uint8)
        if len(block) < needed:
            block = np.empty(needed, np.uint8)
        lent = block[:needed]  # torch holds this array as long as any tensor of its memory lives
        finalize(lent, self._free.append, block).atexit = False
        return torch.from_numpy(lent).view(self._dtype).view(shape)
