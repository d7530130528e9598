"""Memory for batches on the host, used again and again."""

from __future__ import annotations

from collections import deque
from math import prod
from weakref import finalize

import numpy as np
import torch
from torch import Tensor

KEPT = 8
"""Blocks that wait to be used again: those of some steps that are read ahead."""


class ReusedMemory:
    """Tensors of one type on the host. A block returns when the last tensor of its memory is gone, and is
    used again: fresh pages cost more than what is written into them."""

    def __init__(self, dtype: torch.dtype, pinned: bool) -> None:
        self._dtype = dtype
        self._pinned = pinned
        self._free: deque[np.ndarray] = deque(maxlen=KEPT)

    def take(self, *shape: int) -> Tensor:
        """Whatever its memory held before. Pinned memory is kept by torch itself, which waits for copies."""
        if self._pinned:
            return torch.empty(shape, dtype=self._dtype, pin_memory=True)
        wanted = prod(shape) * self._dtype.itemsize
        try:
            block = self._free.pop()
        except IndexError:
            block = np.empty(0, np.uint8)
        if len(block) < wanted:
            block = np.empty(wanted, np.uint8)
        lent = block[:wanted]  # torch holds this array as long as any tensor of its memory lives
        finalize(lent, self._free.append, block).atexit = False
        return torch.from_numpy(lent).view(self._dtype).view(shape)
