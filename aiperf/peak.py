"""Dense peaks of devices by their exact name and the format of the multiplications, each with its source.

A device that is not listed has no peak: utilisation is then unknown, never guessed. Names are those
that torch reports (`torch.cuda.get_device_name`, `torch.xpu`, `torch_npu.npu`). Figures are the
vendor's, without sparsity, with accumulation in fp32. Not listed, because the name does not tell which
figure holds: "AMD Instinct MI250X / MI250" and the Ascend 910B family.

Compared in November 2026 with publications of others, for the vendors' own documents could not be opened
then: V100 SXM2, T4, A100, H100, H200, RTX 4090, MI250X, Ascend 910, Gaudi 2 and 3 agree, and so do B200 and
GB200 in tf32 and 16 bits (in fp32, 80 and 90 are found as well). All others rest on the document named alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["PEAKS", "Peak", "peak_ops_per_second"]

TERA = 10**12


@dataclass(frozen=True)
class Peak:
    """Operations per second / 10^12 in each format; None where the device does not have it."""

    fp32: float | None
    tf32: float | None
    bf16: float | None
    fp16: float | None
    source: str
    largest_gib: float | None = None
    """Of memory, where one name stands for a part of a device as well as for all of it."""


_V100 = "NVIDIA V100 Tensor Core GPU data sheet, 2020"
_T4 = "NVIDIA T4 Tensor Core GPU data sheet, 2019"
_A100 = "NVIDIA A100 Tensor Core GPU data sheet, 2021; half of each figure with sparsity"
_A30 = "NVIDIA A30 Tensor Core GPU data sheet, 2021; half of each figure with sparsity"
_ADA = "NVIDIA Ada GPU Architecture white paper 2.1, appendix A; fp16 with fp32 accumulation"
_L40S = "NVIDIA L40S data sheet, 2023; half of each figure with sparsity"
_L4 = "NVIDIA L4 data sheet, 2023; half of each figure with sparsity"
_H100 = "NVIDIA H100 Tensor Core GPU Architecture white paper 1.04, table 2"
_H100_NVL = "NVIDIA H100 Tensor Core GPU data sheet, 2024; half of each figure with sparsity"
_H200 = "NVIDIA H200 Tensor Core GPU data sheet, 2024; half of each figure with sparsity"
_GH200 = "NVIDIA GH200 Grace Hopper Superchip data sheet, 2023; half of each figure with sparsity"
_BLACKWELL = "NVIDIA Blackwell data sheet, 2025, one GPU; half of each tensor figure, which are with sparsity"
_RTX_5090 = "NVIDIA RTX Blackwell GPU Architecture white paper 1.1, appendix A; fp16 with fp32 accumulation"
_MI200 = "AMD Instinct MI200 series data sheet, 2022, matrix figures; one of the two dies"
_MI210 = "AMD Instinct MI210 data sheet, 2022, matrix figures"
_MI300A = "AMD Instinct MI300A APU data sheet, 2023, matrix figures"
_MI300X = "AMD Instinct MI300X data sheet, 2023, matrix figures"
_MI325X = "AMD Instinct MI325X data sheet, 2024, matrix figures"
_MI355X = "AMD Instinct MI355X data sheet, 2025, matrix figures"
_ASCEND = "Huawei, press release on the Ascend 910, 23 August 2019"
_GAUDI = "Intel, Gaudi 3 AI Accelerator, Hot Chips 2024, table of the product generations"
_MAX = "Intel Data Center GPU Max Series product brief, 2023; one of the two stacks"

PEAKS: Mapping[str, Peak] = {
    "Tesla V100-PCIE-16GB": Peak(14, None, None, 112, _V100),
    "Tesla V100-PCIE-32GB": Peak(14, None, None, 112, _V100),
    "Tesla V100-SXM2-16GB": Peak(15.7, None, None, 125, _V100),
    "Tesla V100-SXM2-32GB": Peak(15.7, None, None, 125, _V100),
    "Tesla V100S-PCIE-32GB": Peak(16.4, None, None, 130, _V100),
    "Tesla T4": Peak(8.1, None, None, 65, _T4),
    "NVIDIA A100-PCIE-40GB": Peak(19.5, 156, 312, 312, _A100),
    "NVIDIA A100 80GB PCIe": Peak(19.5, 156, 312, 312, _A100),
    "NVIDIA A100-SXM4-40GB": Peak(19.5, 156, 312, 312, _A100),
    "NVIDIA A100-SXM4-80GB": Peak(19.5, 156, 312, 312, _A100),
    "NVIDIA A30": Peak(10.3, 82, 165, 165, _A30),
    "NVIDIA GeForce RTX 4090": Peak(82.6, 82.6, 165.2, 165.2, _ADA),
    "NVIDIA L4": Peak(30.3, 60, 121, 121, _L4),
    "NVIDIA L40S": Peak(91.6, 183, 362.05, 362.05, _L40S),
    "NVIDIA H100 PCIe": Peak(51.2, 378, 756, 756, _H100),
    "NVIDIA H100 80GB HBM3": Peak(66.9, 494.7, 989.4, 989.4, _H100),
    "NVIDIA H100 NVL": Peak(60, 417.5, 835.5, 835.5, _H100_NVL),
    "NVIDIA H200": Peak(67, 494.5, 989.5, 989.5, _H200),
    "NVIDIA H200 NVL": Peak(60, 417.5, 835.5, 835.5, _H200),
    "NVIDIA GH200 120GB": Peak(67, 494.5, 989.5, 989.5, _GH200),
    "NVIDIA GH200 480GB": Peak(67, 494.5, 989.5, 989.5, _GH200),
    "NVIDIA B200": Peak(75, 1100, 2250, 2250, _BLACKWELL),
    "NVIDIA GB200": Peak(80, 1250, 2500, 2500, _BLACKWELL),
    "NVIDIA GeForce RTX 5090": Peak(104.8, 104.8, 209.5, 209.5, _RTX_5090),
    "AMD Instinct MI210": Peak(45.3, None, 181, 181, _MI210),
    "AMD Instinct MI250X": Peak(47.85, None, 191.5, 191.5, _MI200),
    "AMD Instinct MI300A": Peak(122.6, 490.3, 980.6, 980.6, _MI300A),
    "AMD Instinct MI300X": Peak(163.4, 653.7, 1307.4, 1307.4, _MI300X),
    "AMD Instinct MI325X": Peak(163.4, 653.7, 1307.4, 1307.4, _MI325X),
    "AMD Instinct MI355X": Peak(157.3, None, 2516.6, 2516.6, _MI355X),
    "Ascend910A": Peak(None, None, None, 256, _ASCEND),
    "GAUDI2": Peak(None, None, 432, None, _GAUDI),
    "GAUDI3": Peak(None, None, 1835, None, _GAUDI),
    "Intel(R) Data Center GPU Max 1550": Peak(26, 209.5, 419.5, 419.5, _MAX, largest_gib=64),
}


def peak_ops_per_second(device: str, format: str, memory_bytes: int) -> float | None:
    """Of one device in a format (fp32, tf32, bf16 or fp16); None where it is not known."""
    peak = PEAKS.get(device)
    if peak is None or (peak.largest_gib is not None and memory_bytes > peak.largest_gib * 2**30):
        return None
    tera: float | None = {"fp32": peak.fp32, "tf32": peak.tf32, "bf16": peak.bf16, "fp16": peak.fp16}[format]
    return None if tera is None else tera * TERA
