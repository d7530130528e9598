"""What a device cannot exceed, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aiperf.hardware.bound import MOST_OF_THE_PEAK, TOP_HERTZ, bound_ops_per_second, processor_ops_per_second
from aiperf.hardware.peak import GIB
from aiperf.wire.messages import Processor
from tests.journals import READY

ZEN_3 = Processor("x86_64", logical=128, top_hertz=3.5e9, flags=("avx", "avx2", "fma", "sse2"))
SAPPHIRE_RAPIDS = Processor("x86_64", 224, 0.0, ("amx_bf16", "avx512_bf16", "avx512f", "fma", "sse2"))
GRAVITON_3 = Processor("aarch64", 64, 2.6e9, ("asimd", "bf16", "sve", "svebf16"), vector_bits=256)


@pytest.mark.parametrize(
    ("processor", "format", "bound"),
    [
        (ZEN_3, "fp32", 128 * 3.5e9 * 2 * 8 * 2),
        (ZEN_3, "bf16", 128 * 3.5e9 * 2 * 8 * 2),  # emulated: no more than fp32
        (SAPPHIRE_RAPIDS, "fp32", 224 * TOP_HERTZ * 2 * 16 * 2),
        (SAPPHIRE_RAPIDS, "bf16", 224 * TOP_HERTZ * 2 * 16 * 16 * 32 / 16),
        (GRAVITON_3, "fp32", 64 * 2.6e9 * 4 * 8 * 2),
        (GRAVITON_3, "bf16", 64 * 2.6e9 * 4 * 2 * 32),
        (replace(GRAVITON_3, flags=(*GRAVITON_3.flags, "sme")), "fp32", None),
        (Processor("ppc64le", 160, 4e9, ()), "fp32", None),
        (Processor("x86_64", 4, 0.0, ()), "fp32", None),
    ],
)
def test_a_processor_by_its_instructions(processor: Processor, format: str, bound: float | None) -> None:
    found = processor_ops_per_second(processor, format)
    assert found == (None if bound is None else pytest.approx(bound))


def test_ranks_of_one_host_share_its_processors() -> None:
    ranks = [replace(READY, rank=rank, host="a", processor=ZEN_3) for rank in (1, 2)]
    one = processor_ops_per_second(ZEN_3, "fp32")
    assert one is not None
    assert bound_ops_per_second(ranks, "fp32") == pytest.approx(one)
    elsewhere = [*ranks, replace(ranks[0], rank=3, host="b")]
    assert bound_ops_per_second(elsewhere, "fp32") == pytest.approx(2 * one)


def test_other_devices_have_their_listed_peak_each() -> None:
    ranks = [replace(READY, rank=rank, host="a", device="NVIDIA H200", processor=None) for rank in (1, 2)]
    assert bound_ops_per_second(ranks, "bf16") == pytest.approx(2 * MOST_OF_THE_PEAK * 989.5e12)


@pytest.mark.parametrize("gib", [64, 128, 10**6])
def test_no_memory_that_is_claimed_removes_a_bound(gib: int) -> None:
    """The name stands for one stack and for both, and the bound is that of both."""
    ready = replace(READY, device="Intel(R) Data Center GPU Max 1550", memory_bytes=gib * GIB)
    assert bound_ops_per_second([ready], "bf16") == pytest.approx(2 * MOST_OF_THE_PEAK * 419.5e12)


def test_no_processor_that_is_claimed_beside_a_listed_device_widens_its_bound() -> None:
    claimed = replace(ZEN_3, logical=10**9)
    ranks = [replace(READY, rank=1, device="NVIDIA H200", processor=claimed)]
    assert bound_ops_per_second(ranks, "bf16") == pytest.approx(MOST_OF_THE_PEAK * 989.5e12)


def test_no_clock_is_believed_beyond_the_fastest_there_is() -> None:
    claimed = replace(ZEN_3, top_hertz=1e15)
    assert processor_ops_per_second(claimed, "fp32") == pytest.approx(128 * TOP_HERTZ * 32)


def test_one_device_without_a_bound_leaves_all_without() -> None:
    ranks = [replace(READY, rank=1, device="NVIDIA H200"), replace(READY, rank=2, device="Abacus 9")]
    assert bound_ops_per_second(ranks, "bf16") is None
    assert bound_ops_per_second([], "bf16") is None
