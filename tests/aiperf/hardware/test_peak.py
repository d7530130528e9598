"""The table of peaks: exact names, dense figures, sources; and nothing for what is not listed. What a device
cannot exceed, by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from aiperf.hardware import bound
from aiperf.hardware.bound import bound_ops_per_second, processor_ops_per_second
from aiperf.hardware.peak import GIB, PEAKS, TERA, peak_ops_per_second
from aiperf.wire.reports import Processor
from tests.journals import READY
from tests.tables import ComesTo


def off(device: str, units: float, gigahertz: float, **operations: float) -> list[str]:
    """Formats whose listed peak is not units times clock times operations per unit and cycle.

    Units are multiprocessors, compute units or engines, by the vendors' architecture papers. Data sheets have
    few digits, and for the L40S 1.2 % less than its own clock gives.
    """
    peaks = {name: units * gigahertz * 1e9 * each for name, each in operations.items()}
    return [name for name, peak in peaks.items() if abs(tera(device, name, 24) * TERA / peak - 1) > 0.0125]


def tera(device: str, format: str, gib: int) -> Any:
    found = peak_ops_per_second(device, format, gib * GIB)
    return found and found / TERA


def test_known_devices_have_a_peak_in_their_formats(comes_to_what_was_read: ComesTo) -> None:
    comes_to_what_was_read("peaks.txt", {"tera": tera, "off": off})


@pytest.mark.parametrize("name", PEAKS)
def test_figures_are_plausible_and_have_a_source(name: str) -> None:
    peak = PEAKS[name]
    figures = [figure for figure in (peak.fp32, peak.tf32, peak.bf16, peak.fp16) if figure is not None]
    assert figures == sorted(figures), "narrower formats are never slower"
    assert 5 < min(figures) <= max(figures) < 5000
    document = peak.source.document
    assert any(year in document for year in map(str, range(2017, 2027))) or "white paper" in document


ZEN_3 = Processor("x86_64", logical=128, top_hertz=3.5e9, flags=("avx", "avx2", "fma", "sse2"))
SAPPHIRE_RAPIDS = Processor("x86_64", 224, 0.0, ("amx_bf16", "avx512_bf16", "avx512f", "fma", "sse2"))
GRAVITON_3 = Processor("aarch64", 64, 2.6e9, ("asimd", "bf16", "sve", "svebf16"), vector_bits=256)
H200, MAX_1550 = "NVIDIA H200", "Intel(R) Data Center GPU Max 1550"


def own(processor: Processor, format: str = "fp32") -> float | None:
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
    comes_to_what_was_read("bounds.txt", vars(bound) | globals())
