"""A split of windows: in order for validation and test; for training shifted and shuffled anew each pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from hashlib import blake2b
from itertools import count
from typing import NamedTuple

import torch
from torch import Tensor

from aiperf.data.resident import BLOCK_BYTES
from aiperf.data.splits import Batch, Order, Split, Stage, share_of_step


class Grid(NamedTuple):
    """Where windows begin: window w at first + w · step, in a pass of training all later by its offset."""

    windows: int
    first: int
    step: int
    offsets: int = 1
    """From 0 up to below this one, of a pass."""


class WindowSource(ABC):
    """What windows are made of."""

    size: int
    """T: the symbols of a window."""
    read: bool
    """Whether from files, while training goes on."""

    @abstractmethod
    def show(self, places: Tensor) -> Tensor:
        """The bytes (m, size + 1) on the device of the windows at these places (m,), int64 on the host."""


class WindowSplit(Split):
    """Windows of a text as examples: symbols (n, size), and for each the symbol that follows it, both
    int64."""

    def __init__(self, grid: Grid, windows: WindowSource, num_examples: int = 0) -> None:
        """An epoch has `num_examples` windows; 0: all of the grid."""
        self.num_examples = num_examples or grid.windows
        self._grid = grid
        self._windows = windows

    def stream(self, batch_size: int, seed: int, rank: int = 0, ranks: int = 1) -> Iterator[Batch]:
        mine = share_of_step(batch_size, rank, ranks)
        places = ShuffledPlaces(self._grid, seed)
        size = mine.stop - mine.start
        steps = max(1, BLOCK_BYTES // (size * self._batch_bytes))
        for first in count(0, steps):
            block = places.take(first * batch_size, (first + steps) * batch_size)
            symbols, targets = self._batch(block.view(steps, batch_size)[:, mine].reshape(-1))
            yield from zip(symbols.split(size), targets.split(size))

    def sweep(self, batch_size: int, rank: int = 0, ranks: int = 1) -> Iterator[Batch]:
        for batch in self.sweep_batches(batch_size, rank, ranks):
            yield self._batch(self._grid.first + torch.arange(batch.start, batch.stop) * self._grid.step)

    def stages(self, examples: int) -> Sequence[Stage]:
        if not self._windows.read:
            return ()
        places = ShuffledPlaces(self._grid, 0).take(0, examples)
        return [Stage("reading", partial(self._windows.show, places), 1)]

    @property
    def _batch_bytes(self) -> int:
        """Bytes of a window: its symbols and the targets, both int64."""
        return 2 * 8 * self._windows.size

    def _batch(self, places: Tensor) -> Batch:
        """The symbols of the windows at these places, and the byte after each symbol."""
        shown = self._windows.show(places)
        return shown[:, :-1].to(torch.int64), shown[:, 1:].to(torch.int64)


class ShuffledPlaces:
    """Endless positions 0, 1, 2, …, as of `Order`: position p is in pass p // windows, of all windows."""

    def __init__(self, grid: Grid, seed: int) -> None:
        self._grid = grid
        self._seed = seed
        self._order = Order(grid.windows, seed)

    def take(self, start: int, stop: int) -> Tensor:
        """Where the windows (m,) of the positions start ≤ p < stop begin, on the host."""
        windows, _ = self._order.take(start, stop)
        places = self._grid.first + windows * self._grid.step
        number = self._grid.windows
        # Each pass has an offset of its own, so that in the course of a run windows begin at every byte.
        for each in range(start // number, -(-stop // number)):
            places[max(0, each * number - start) : (each + 1) * number - start] += self.offset(each)
        return places

    def offset(self, number: int) -> int:
        """The offset of a pass, which follows from (seed, pass) alone."""
        digest = blake2b(f"{self._seed}/{number}/offset".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % self._grid.offsets
