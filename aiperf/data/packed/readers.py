"""Threads that cut images out of mapped shards, ahead of the training that asks for them."""

from __future__ import annotations

import random
import threading
import warnings
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from aiperf.data.decode import EVALUATED_SHARE, random_box
from aiperf.data.packed.shards import Maps

PIECE = 32
"""Images that a thread takes at a time, so that several threads fill one step."""


class Shown(NamedTuple):
    """One image to show."""

    image: int
    draws: str
    """What the random crop and flip are drawn from, as of files; empty: the evaluation crop."""


class Readers:
    """The threads of one rank, for every split and trial."""

    def __init__(self, threads: int, size: int) -> None:
        self.threads, self.size = threads, size
        _silence_torch()
        self._pool = ThreadPoolExecutor(threads, "read", initializer=torch.set_num_threads, initargs=(1,))
        self._start()

    def fill(self, maps: Maps, step: Sequence[Shown], buffer: Tensor) -> list[Future[None]]:
        """Begins to write the images of a step into bytes (n, size, size, channels)."""
        maps.announce(shown.image for shown in step)
        pixels = buffer.numpy()
        return [
            self._pool.submit(self._piece, maps, step[first : first + PIECE], pixels[first : first + PIECE])
            for first in range(0, len(step), PIECE)
        ]

    def fill_here(self, maps: Maps, step: Sequence[Shown], buffer: Tensor) -> None:
        """The same in the thread that calls."""
        self._piece(maps, step, buffer.numpy())

    def _piece(self, maps: Maps, step: Sequence[Shown], pixels: NDArray[np.uint8]) -> None:
        for shown, place in zip(step, pixels):
            place[...] = cut(maps[shown.image], self.size, shown.draws)

    def _start(self) -> None:
        """All threads at once. An image is too small to be shared between threads of OpenMP, so each of these
        has none of them; but `set_num_threads` also says how many a thread has that begins later, which must
        be those of this one again."""
        together = threading.Barrier(self.threads + 1)
        for _ in range(self.threads):
            self._pool.submit(together.wait)
        together.wait()
        torch.set_num_threads(torch.get_num_threads())


def _silence_torch() -> None:
    """Torch warns once in a process of an array that cannot be written, as those of the shards are. They are
    only read, so the warning is spent here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.from_numpy(np.frombuffer(b"\0", np.uint8))


def cut(image: NDArray[np.uint8], size: int, draws: str) -> NDArray[np.uint8]:
    """The square of a packed image (side, side, channels) that is shown: bytes (size, size, channels).

    The evaluation crop is the centred square of 224/256 of the side: of images of 256² at 224² its pixels as
    they are. A random crop has the box and the flip that a file of this shape has from the same draws.
    """
    side = image.shape[0]
    if not draws:
        edge = round(side * EVALUATED_SHARE)
        first = (side - edge) // 2
        return _scaled(image[first : first + edge, first : first + edge], size)
    source = random.Random(draws)
    left, upper, right, lower = map(int, random_box(source, side, side))
    flip = source.random() < 0.5
    return _scaled(image[upper:lower, left:right], size, flip)


def _scaled(crop: NDArray[np.uint8], size: int, flip: bool = False) -> NDArray[np.uint8]:
    """Bilinear, with antialiasing, by torch's filter for bytes: to the bit what Pillow makes of the crop."""
    if crop.shape[:2] == (size, size) and not flip:
        return crop
    # Channels last in the strides as well, also of the one image: else torch goes through planes, at half
    # the speed.
    pixels = torch.from_numpy(crop).unsqueeze(0).permute(0, 3, 1, 2)
    if flip:
        pixels = pixels.flip(3)
    if crop.shape[:2] != (size, size):
        pixels = interpolate(pixels, (size, size), mode="bilinear", antialias=True)
    return pixels[0].permute(1, 2, 0).numpy()
