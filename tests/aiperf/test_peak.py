"""The table of peaks: exact names, dense figures, sources; and nothing for what is not listed."""

from __future__ import annotations

import pytest

from aiperf.peak import PEAKS, TERA, peak_ops_per_second

GIB = 2**30


@pytest.mark.parametrize(
    ("device", "format", "tera"),
    [
        ("NVIDIA A100-SXM4-80GB", "bf16", 312),
        ("NVIDIA A100-SXM4-80GB", "tf32", 156),
        ("NVIDIA A100-SXM4-80GB", "fp32", 19.5),
        ("NVIDIA H100 80GB HBM3", "bf16", 989.4),
        ("NVIDIA H100 PCIe", "fp16", 756),
        ("NVIDIA H200", "bf16", 989.5),
        ("NVIDIA B200", "bf16", 2250),
        ("Tesla V100-SXM2-32GB", "fp16", 125),
        ("AMD Instinct MI250X", "bf16", 191.5),
        ("AMD Instinct MI300X", "fp16", 1307.4),
    ],
)
def test_known_devices(device: str, format: str, tera: float) -> None:
    assert peak_ops_per_second(device, format, 80 * GIB) == tera * TERA


@pytest.mark.parametrize(
    "device",
    [
        "",
        "NVIDIA",
        "H100",
        "nvidia h200",
        "NVIDIA H200 ",
        "NVIDIA A100",
        "AMD Radeon Graphics",
        "Ascend910B3",
    ],
)
def test_a_piece_of_a_name_is_no_name(device: str) -> None:
    assert peak_ops_per_second(device, "bf16", 80 * GIB) is None


def test_a_format_that_a_device_lacks_has_no_peak() -> None:
    assert peak_ops_per_second("Tesla V100-SXM2-32GB", "bf16", 32 * GIB) is None
    assert peak_ops_per_second("AMD Instinct MI355X", "tf32", 288 * GIB) is None


def test_a_name_that_stands_for_a_part_and_for_the_whole_is_told_apart_by_its_memory() -> None:
    name = "Intel(R) Data Center GPU Max 1550"
    assert peak_ops_per_second(name, "bf16", 64 * GIB) == 419.5 * TERA
    assert peak_ops_per_second(name, "bf16", 128 * GIB) is None


@pytest.mark.parametrize("name", PEAKS)
def test_figures_are_plausible_and_have_a_source(name: str) -> None:
    peak = PEAKS[name]
    figures = [figure for figure in (peak.fp32, peak.tf32, peak.bf16, peak.fp16) if figure is not None]
    assert figures == sorted(figures), "narrower formats are never slower"
    assert 5 < min(figures) <= max(figures) < 5000
    assert any(year in peak.source for year in map(str, range(2017, 2026))) or "white paper" in peak.source
