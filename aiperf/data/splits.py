"""What a training loop reads: three splits of one set of examples, the order in which a split shows them, and
the manifest, which describes the set in plain JSON."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aiperf.tasks.data import PARTS, DataConfig
from nas.frozen import frozen
from nas.portable.preparation import Preparation

Batch = tuple[Tensor, Tensor]
"""Images (n, channels, size, size), float32, normalised, channels-last, and labels (n,), int64.

Both lie on the device. They may be views of a larger block: read them, never write into them.
"""


class Stage(NamedTuple):
    """A part of what a stream does to examples, to be timed by itself."""

    name: str
    once: Callable[[], object]
    """Does it, on one core."""
    workers: int
    """Number of cores that do it at the same time in a stream."""


class Split(ABC):
    """Examples with their labels, in a fixed order; example i is the same on every rank."""

    num_examples: int
    """Number of examples in one pass of a stream, or in a sweep of all ranks."""

    @abstractmethod
    def stream(self, batch_size: int, seed: int, rank: int = 0, ranks: int = 1) -> Iterator[Batch]:
        """Batches without end, shuffled anew every pass, and augmented if the split is.

        The order is the passes' permutations one after the other, cut into steps of exactly
        `batch_size` examples over all `ranks`; each rank takes its even share of every step. Order and
        augmentation depend on (seed, pass) alone, not on ranks or device.
        """

    @abstractmethod
    def sweep(self, batch_size: int, rank: int = 0, ranks: int = 1) -> Iterator[Batch]:
        """Every example exactly once over all ranks, in order: not padded, not augmented.

        A batch has at most `batch_size` examples over all ranks. Ranks may get different numbers of
        batches, so no collective belongs inside this loop.
        """

    def sweep_batches(self, batch_size: int, rank: int, ranks: int) -> Iterator[range]:
        """Yields the numbers of the examples of each batch of a rank in a sweep."""
        mine = share(self.num_examples, rank, ranks)
        size = max(1, batch_size // ranks)
        for first in range(mine.start, mine.stop, size):
            yield range(first, min(first + size, mine.stop))

    def stages(self, examples: int) -> Sequence[Stage]:
        """What a stream does to this many examples, in its order; nothing if they lie on the device."""
        return ()


@frozen
class Data:
    """A checked set of examples: trained on, chosen by, and tested with once at the end."""

    train: Split
    validation: Split
    test: Split
    manifest: Mapping[str, Any]
    """Plain JSON, equal on every rank that sees the same examples; the keys are in docs/data.md."""
    note: str = ""
    """What was read of a folder and what was left out, for the user; empty for anything else."""
    preparation: Preparation | None = None
    """How an example becomes what a network reads, for those who use the network elsewhere; None if it is
    generated."""


class Order:
    """The order in which examples are shown: one permutation per pass, from (seed, pass) alone.

    Endless positions 0, 1, 2, …: position p shows example `permutation(p // n)[p % n]`. With each position
    come `draws` numbers in [0, 1), for its augmentation. Both are drawn on the host, so that every device and
    every rank sees the same.
    """

    def __init__(self, num_examples: int, seed: int, draws: int = 0) -> None:
        self.num_examples = num_examples
        self.seed = seed
        self.draws = draws
        self._number = -1
        self._pass = (torch.empty(0, dtype=torch.int64), torch.empty(0, draws))

    def take(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Examples (m,) int64 and draws (m, draws) float32 of the positions start ≤ p < stop."""
        pieces = []
        for number in range(start // self.num_examples, -(-stop // self.num_examples)):
            examples, draws = self._of_pass(number)
            origin = number * self.num_examples
            piece = slice(max(start - origin, 0), stop - origin)
            pieces.append((examples[piece], draws[piece]))
        if len(pieces) == 1:
            return pieces[0]
        return torch.cat([examples for examples, _ in pieces]), torch.cat([draws for _, draws in pieces])

    def _of_pass(self, number: int) -> tuple[Tensor, Tensor]:
        """The examples (n,) and draws (n, draws) of a pass. Only the latest pass is kept, because a stream
        goes on from one to the next."""
        if number != self._number:
            # A hash, because generators with neighbouring seeds begin alike; 63 bits of it, as torch takes.
            digest = blake2b(f"{self.seed}/{number}".encode(), digest_size=8).digest()
            source = torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)
            examples = torch.randperm(self.num_examples, generator=source)
            self._pass = (examples, torch.rand(self.num_examples, self.draws, generator=source))
            self._number = number
        return self._pass


def share_of_step(batch_size: int, rank: int, ranks: int) -> slice:
    """A rank's examples of a step. Raises ValueError when there are more ranks than examples."""
    if batch_size < ranks:
        raise ValueError(f"a step of {batch_size} examples leaves some of {ranks} ranks without examples")
    return share(batch_size, rank, ranks)


def share(total: int, rank: int, ranks: int) -> slice:
    """The even share of `total` that falls to a rank; shares differ by at most one."""
    if not 0 <= rank < ranks:
        raise ValueError(f"rank {rank} is none of {ranks} ranks")
    # The end of one share is the beginning of the next, by the same whole numbers: none is lost or twice.
    return slice(rank * total // ranks, (rank + 1) * total // ranks)


def image_manifest(
    config: DataConfig, labels: Sequence[NDArray[np.int64]], sha256: str, official_training_examples: int
) -> dict[str, Any]:
    """The manifest of a set with these labels (n,) for training, validation and test.

    `sha256` is that of the source: every image of it, whatever part of them a split takes. Validation is
    taken from the `official_training_examples`. Only the sizes of the smallest and the largest class are
    stated, because every rank of a run sends this.
    """
    found = config.manifest(sha256) | {"official_training_examples": official_training_examples}
    for part, each in zip(PARTS, labels, strict=True):
        by_class = np.bincount(each, minlength=config.classes).tolist()
        found[f"{part}_examples"] = len(each)
        found[f"{part}_examples_per_class"] = [min(by_class), max(by_class)]
    return found


def text_manifest(
    config: DataConfig, windows: Sequence[int], sha256: str, official_training_examples: int
) -> dict[str, Any]:
    """The manifest of a text with this many windows for training, validation and test."""
    counts = {f"{part}_examples": number for part, number in zip(PARTS, windows, strict=True)}
    return {
        **config.manifest(sha256),
        "official_training_examples": official_training_examples,
        **counts,
    }
