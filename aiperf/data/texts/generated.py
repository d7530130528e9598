"""Generated text of any length: learnable, the same for a seed on every machine, nothing on disk.

The symbols are 16 of the 256 bytes, in a circle. Each symbol is some steps further round than the one before.
In half of all cases it is as many steps as before, else one of eight numbers is drawn, some of them more
often. So a byte depends on the two before it: a chain of order 2. It takes 4 bits without them, 1.98 bits if
the last one is known, and 1.48 if both are, which is all that can be known.

All is made of whole numbers, a window at once and each by itself, so that devices agree to the bit.
"""

from __future__ import annotations

from hashlib import sha256

import numpy as np
import torch
from torch import Tensor

from aiperf.data.splits import Data, text_manifest
from aiperf.data.synthetic import generated_parts
from aiperf.data.texts.grid import Grid, WindowSource, WindowSplit
from aiperf.tasks.data import DataConfig
from aiperf.tasks.language.facts import MOST_GENERATED
from nas.head import BYTES
from nas.modules import to_device

SYMBOLS = 16
"""A power of two, so that a step round the circle is a sum and a mask."""
SHARES = (128, 64, 32, 16, 8, 4, 2, 2)
"""How often each of eight steps is drawn, of 256 times."""
WORD = (1 << 32) - 1
"""The mask of a word of 32 bits; words are held in int64, which every device has."""
FACTOR = 0x45D9F3B
"""Odd, and so small that its product with a word fits into 64 bits. Of `mixed`, a customary hash."""


class GeneratedWindows(WindowSource):
    """Window g of the endless generated text by its number g, below 2^32; no two are drawn from the same."""

    read = False

    def __init__(self, seed: int, size: int, device: torch.device) -> None:
        self.size = size
        source = np.random.default_rng(seed)
        letters = source.permutation(BYTES)[:SYMBOLS].astype(np.uint8)
        steps = np.repeat(source.permutation(SYMBOLS)[: len(SHARES)], SHARES).astype(np.int64)
        self._key = int(source.integers(WORD, endpoint=True))
        made_of = letters.tobytes() + steps.astype(np.uint8).tobytes() + self._key.to_bytes(4, "big")
        self.sha256 = sha256(made_of).hexdigest()
        self._letters = torch.from_numpy(letters).to(device)
        self._steps = torch.from_numpy(steps).to(device)
        self._along = torch.arange(size + 1, device=device)
        self._positions = mixed(self._along)

    def show(self, places: Tensor) -> Tensor:
        keys = mixed(to_device(places, self._along.device) ^ self._key)
        noise = mixed(keys[:, None] ^ self._positions)
        steps = self._steps[noise >> 8 & 255]
        steps[:, 0] = keys & SYMBOLS - 1  # where the window begins, which is not a step
        drawn = (noise & 1).bool()
        drawn[:, :2] = True
        # The last place where a step was drawn: from there on it is the same.
        steps = steps.gather(1, torch.where(drawn, self._along, 0).cummax(1).values)
        return self._letters[steps.cumsum(1) & SYMBOLS - 1]


def mixed(words: Tensor) -> Tensor:
    """Another word of 32 bits for each, as if drawn; no two of the same. In int64, on every device alike."""
    for _ in range(2):
        words = (words >> 16 ^ words) * FACTOR & WORD
    return words >> 16 ^ words


def load_synthetic_text(config: DataConfig, device: torch.device, seed: int) -> Data:
    """Training, validation and test windows follow one another in the generated text: none is in two."""
    parts = generated_parts(config, "text", "windows", MOST_GENERATED)
    windows = GeneratedWindows(seed, config.size, device)
    train, validation, test = (WindowSplit(Grid(len(part), part.start, step=1), windows) for part in parts)
    manifest = text_manifest(config, config.part_examples, windows.sha256, parts[2].start)
    return Data(train, validation, test, {**manifest, "bytes_left_out": 0})
