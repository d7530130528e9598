"""The table of peaks: exact names, dense figures, sources; and nothing for what is not listed."""

from __future__ import annotations

from typing import Any

import pytest

from aiperf.hardware.peak import PEAKS, TERA, peak_ops_per_second
from tests.tables import ComesTo

GIB = 2**30


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
