"""The table of peaks: exact names, dense figures, sources; and nothing for what is not listed."""

from __future__ import annotations

import pytest

from aiperf.hardware.peak import PEAKS, TERA, peak_ops_per_second

GIB = 2**30


NO_NAMES = ("", "NVIDIA", "H100", "NVIDIA H2OO", "NVIDIA A100", "AMD Radeon Graphics", "Ascend910B")
NO_NAMES += ("Ascend910B4-1", "AMD Instinct MI250X / MI250")
MAX_1550 = "Intel(R) Data Center GPU Max 1550"


@pytest.mark.parametrize(
    ("device", "format", "gib", "tera"),
    [
        ("NVIDIA B200", "bf16", 80, 2250),
        ("Ascend910B2", "bf16", 80, 353.8944),
        ("nvidia-h200", "bf16", 80, 989.5),
        ("GAUDI3", "bf16", 80, 1678),
        ("NVIDIA B300 SXM6 AC", "bf16", 80, 2250),
        ("NVIDIA GB300", "tf32", 80, 1250),
        ("Ascend910_9392", "bf16", 80, 353.8944),
        *((name, "bf16", 139, 989.5) for name in ("NVIDIA H200 ", "NVIDIA\u00a0H200", "ＮＶＩＤＩＡ  H200")),
        *((name, "bf16", 80, None) for name in NO_NAMES),  # a piece of a name is none
        ("Tesla V100-SXM2-32GB", "bf16", 32, None),  # which it does not have
        ("AMD Instinct MI355X", "tf32", 288, None),
        (MAX_1550, "bf16", 64, 419.5),  # one stack
        (MAX_1550, "bf16", 128, None),  # both, under the same name
    ],
)
def test_known_devices_have_a_peak_in_their_formats(
    device: str, format: str, gib: int, tera: float | None
) -> None:
    assert peak_ops_per_second(device, format, gib * GIB) == (tera and tera * TERA)


@pytest.mark.parametrize("name", PEAKS)
def test_figures_are_plausible_and_have_a_source(name: str) -> None:
    peak = PEAKS[name]
    figures = [figure for figure in (peak.fp32, peak.tf32, peak.bf16, peak.fp16) if figure is not None]
    assert figures == sorted(figures), "narrower formats are never slower"
    assert 5 < min(figures) <= max(figures) < 5000
    document = peak.source.document
    assert any(year in document for year in map(str, range(2017, 2027))) or "white paper" in document


@pytest.mark.parametrize(
    ("device", "units", "gigahertz", "operations"),
    [
        ("Tesla V100-PCIE-32GB", 80, 1.38, {"fp32": 128, "fp16": 1024}),
        ("Tesla V100-SXM2-32GB", 80, 1.53, {"fp32": 128, "fp16": 1024}),
        ("Tesla T4", 40, 1.59, {"fp32": 128, "fp16": 1024}),
        ("NVIDIA A100-SXM4-40GB", 108, 1.41, {"fp32": 128, "tf32": 1024, "bf16": 2048, "fp16": 2048}),
        ("NVIDIA A100-SXM-64GB", 124, 1.41, {"fp32": 128, "tf32": 1024, "bf16": 2048, "fp16": 2048}),
        ("NVIDIA A30", 56, 1.44, {"fp32": 128, "tf32": 1024, "bf16": 2048, "fp16": 2048}),
        ("NVIDIA L4", 58, 2.04, {"fp32": 256, "tf32": 512, "bf16": 1024, "fp16": 1024}),
        ("NVIDIA L40S", 142, 2.52, {"fp32": 256, "tf32": 512, "bf16": 1024, "fp16": 1024}),
        ("NVIDIA GeForce RTX 4090", 128, 2.52, {"fp32": 256, "tf32": 256, "bf16": 512, "fp16": 512}),
        ("NVIDIA GeForce RTX 5090", 170, 2.407, {"fp32": 256, "tf32": 256, "bf16": 512, "fp16": 512}),
        ("NVIDIA H100 PCIe", 114, 1.755, {"fp32": 256}),
        ("NVIDIA H100 NVL", 132, 1.785, {"fp32": 256}),
        ("NVIDIA H100 80GB HBM3", 132, 1.98, {"fp32": 256}),
        ("NVIDIA H100 80GB HBM3", 132, 1.83, {"tf32": 2048, "bf16": 4096, "fp16": 4096}),
        ("NVIDIA H200", 132, 1.83, {"tf32": 2048, "bf16": 4096, "fp16": 4096}),
        ("NVIDIA GH200 144G HBM3e", 132, 1.83, {"tf32": 2048, "bf16": 4096, "fp16": 4096}),
        ("AMD Instinct MI210", 104, 1.7, {"fp32": 256, "bf16": 1024, "fp16": 1024}),
        ("AMD Instinct MI250X", 220 / 2, 1.7, {"fp32": 256, "bf16": 1024, "fp16": 1024}),
        ("AMD Instinct MI300A", 228, 2.1, {"fp32": 256, "tf32": 1024, "bf16": 2048, "fp16": 2048}),
        ("AMD Instinct MI300X", 304, 2.1, {"fp32": 256, "tf32": 1024, "bf16": 2048, "fp16": 2048}),
        ("AMD Instinct MI325X", 304, 2.1, {"fp32": 256, "tf32": 1024, "bf16": 2048, "fp16": 2048}),
        ("AMD Instinct MI355X", 256, 2.4, {"fp32": 256, "bf16": 4096, "fp16": 4096}),
        ("GAUDI2", 2, 1.65, {"bf16": 2 * 256**2}),
        ("GAUDI3", 8, 1.6, {"bf16": 2 * 256**2}),
        ("Intel(R) Data Center GPU Max 1100", 448, 1.55, {"fp32": 32, "tf32": 256, "bf16": 512, "fp16": 512}),
        ("Intel(R) Data Center GPU Max 1550", 512, 1.6, {"fp32": 32, "tf32": 256, "bf16": 512, "fp16": 512}),
    ],
)
def test_a_peak_is_units_times_clock_times_operations(
    device: str, units: float, gigahertz: float, operations: dict[str, int]
) -> None:
    """Units are multiprocessors, compute units or engines, by the vendors' architecture papers.

    Data sheets print few digits, and for the L40S 1.2 % less than its own clock gives.
    """
    for format, per_unit_and_cycle in operations.items():
        listed = peak_ops_per_second(device, format, 24 * GIB)
        assert listed == pytest.approx(units * gigahertz * 1e9 * per_unit_and_cycle, rel=0.0125), format
