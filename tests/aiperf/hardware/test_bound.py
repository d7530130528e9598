"""What a device cannot exceed, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aiperf.hardware.bound import MOST_OF_THE_PEAK, TOP_HERTZ, bound_ops_per_second, processor_ops_per_second
from aiperf.hardware.peak import GIB
from aiperf.wire.messages import Processor, Ready
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


def test_no_clock_is_believed_beyond_the_fastest_there_is() -> None:
    claimed = replace(ZEN_3, top_hertz=1e15)
    assert processor_ops_per_second(claimed, "fp32") == pytest.approx(128 * TOP_HERTZ * 32)


ON_ZEN_3 = replace(READY, rank=1, host="a", processor=ZEN_3)
TWO = [ON_ZEN_3, replace(ON_ZEN_3, rank=2)]
H200 = replace(READY, rank=1, host="a", device="NVIDIA H200", processor=None)
MAX_1550 = replace(READY, device="Intel(R) Data Center GPU Max 1550")


@pytest.mark.parametrize(
    ("ranks", "format", "bound"),
    [
        (TWO, "fp32", 128 * 3.5e9 * 32),  # they share the processors
        (
            [ON_ZEN_3, replace(ON_ZEN_3, rank=2), replace(ON_ZEN_3, rank=3, host="b")],
            "fp32",
            256 * 3.5e9 * 32,
        ),
        ([H200, replace(H200, rank=2)], "bf16", 2 * MOST_OF_THE_PEAK * 989.5e12),
        # Nothing that is claimed removes or widens it: neither another processor nor any memory.
        ([replace(H200, processor=replace(ZEN_3, logical=10**9))], "bf16", MOST_OF_THE_PEAK * 989.5e12),
        *(
            ([replace(MAX_1550, memory_bytes=gib * GIB)], "bf16", 2 * MOST_OF_THE_PEAK * 419.5e12)
            for gib in (
                64,
                128,
                10**6,
            )  # one stack or both, by the same name: the bound is that of both
        ),
        ([H200, replace(READY, rank=2, device="Abacus 9")], "bf16", None),
        ([], "bf16", None),
    ],
)
def test_devices_together_have_the_bounds_of_each(
    ranks: list[Ready], format: str, bound: float | None
) -> None:
    found = bound_ops_per_second(ranks, format)
    assert found == (None if bound is None else pytest.approx(bound))
