"""What every rank of a group knows after it was gathered by sums."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import torch.distributed as dist

from aiperf.parallel.ddp import Ddp
from aiperf.parallel.parallel import Solo, gathered


class Summed(Solo):
    """One of several ranks: what the others add is written down."""

    def __init__(self, rank: int, ranks: int, others: list[tuple[int, ...]]) -> None:
        self.rank, self.ranks, self.others = rank, ranks, others

    def total(self, *numbers: int) -> tuple[int, ...]:
        self.others.append(numbers)
        return tuple(map(sum, zip(*self.others)))


def test_the_last_rank_has_the_bytes_of_all_in_their_order() -> None:
    digests = [bytes(32), b"\xff" * 32, sha256(b"2").digest()]
    others: list[tuple[int, ...]] = []
    found = [gathered(Summed(rank, 3, others), digest) for rank, digest in enumerate(digests)]
    assert found[-1] == b"".join(digests)
    assert all(-(1 << 63) <= number < 1 << 63 for numbers in others for number in numbers)


def test_alone_it_is_its_own() -> None:
    assert gathered(Solo(), b"12345678") == b"12345678"
    assert gathered(Solo(), b"123456789") == b"123456789" + bytes(7)


def test_a_lack_of_nccls_memory_is_no_fault_of_another_rank() -> None:
    for reason, is_of_another in (("Cuda failure 2 'out of memory'", False), ("remote process exited", True)):
        assert Ddp.is_of_another(Any, dist.DistBackendError(f"NCCL error: {reason}")) is is_of_another
