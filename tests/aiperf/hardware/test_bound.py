"""What a device cannot exceed, by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from aiperf.hardware.bound import MOST_OF_THE_PEAK, TOP_HERTZ, bound_ops_per_second, processor_ops_per_second
from aiperf.hardware.peak import GIB
from aiperf.wire.reports import Processor
from tests.journals import READY
from tests.tables import ComesTo

ZEN_3 = Processor("x86_64", logical=128, top_hertz=3.5e9, flags=("avx", "avx2", "fma", "sse2"))
SAPPHIRE_RAPIDS = Processor("x86_64", 224, 0.0, ("amx_bf16", "avx512_bf16", "avx512f", "fma", "sse2"))
GRAVITON_3 = Processor("aarch64", 64, 2.6e9, ("asimd", "bf16", "sve", "svebf16"), vector_bits=256)
H200, MAX_1550 = "NVIDIA H200", "Intel(R) Data Center GPU Max 1550"


def tera(processor: Processor, format: str = "fp32") -> float | None:
    """TOPS of a processor by its instructions."""
    found = processor_ops_per_second(processor, format)
    return found and round(found / 1e12, 6)


def together(*ranks: Mapping[str, object], format: str = "bf16") -> float | None:
    """TOPS of ranks, which share the processors of a host; of a listed device more than its peak."""
    ready = [replace(READY, **{"rank": rank, "host": "a", **given}) for rank, given in enumerate(ranks, 1)]  # type: ignore[arg-type]
    found = bound_ops_per_second(ready, format)
    return found and round(found / 1e12, 6)


def test_a_bound_is_that_of_the_instructions_and_of_the_listed_peaks(comes_to_what_was_read: ComesTo) -> None:
    """No memory, processor or clock that is claimed widens one, and one device without leaves all without."""
    comes_to_what_was_read(
        "bounds.txt", {**globals(), "MOST": MOST_OF_THE_PEAK, "TOP": TOP_HERTZ, "GIB": GIB}
    )
