"""What a training loop reads: three splits of one set of examples, and what they hold as plain JSON."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

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
    """Cores that do it at once in a stream."""


class Split(ABC):
    """Examples with their labels, in a fixed order; example i is the same on every rank."""

    num_examples: int

    @abstractmethod
    def stream(self, batch_size: int, seed: int, rank: int = 0, ranks: int = 1) -> Iterator[Batch]:
        """Batches without end, shuffled anew every pass, augmented where the split is.

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

    def stages(self, examples: int) -> Sequence[Stage]:
        """What a stream does to so many examples, in its order; nothing where they lie on the device."""
        return ()


@dataclass(frozen=True)
class Data:
    """A checked set of examples: trained on, chosen by, and tested with once at the end."""

    train: Split
    validation: Split
    test: Split
    manifest: Mapping[str, Any]
    """Plain JSON, equal on every rank that sees the same examples; the keys are in docs/data.md."""
    note: str = ""
    """What was read of a folder and what was left out, for the user; empty for anything else."""


def share_of_step(batch_size: int, rank: int, ranks: int) -> slice:
    """A rank's examples of a step. Raises ValueError when there are more ranks than examples."""
    if batch_size < ranks:
        raise ValueError(f"a step of {batch_size} examples leaves some of {ranks} ranks without examples")
    return share(batch_size, rank, ranks)


def share(total: int, rank: int, ranks: int) -> slice:
    """The even share of `total` that falls to a rank; shares differ by at most one."""
    if not 0 <= rank < ranks:
        raise ValueError(f"rank {rank} is none of {ranks} ranks")
    return slice(rank * total // ranks, (rank + 1) * total // ranks)
