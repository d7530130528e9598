"""Dense peaks of devices by their exact name and the format of the multiplications, each with its source.

A device that is not listed has no peak: utilisation is then unknown, never guessed. Names are those
that torch reports (`torch.cuda.get_device_name`, `torch.xpu`, `torch_npu.npu`); NVIDIA's, from Turing on,
stand in the README of its open kernel modules, AMD's in libdrm's amdgpu.ids. Figures are the vendor's,
without sparsity, with accumulation in fp32, of a device that is not partitioned. Not listed, because the
name does not tell which figure holds: "AMD Instinct MI250X / MI250". The size of the memory is the vendor's
too, from the same document or the name; it is left out where it was in neither or one name has several sizes
(RTX 4090 boards with 48 GB are about; GH200 names the host's).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from aiperf.hardware.device_names import folded_name
from nas.frozen import frozen

TERA = 10**12
GIB = 2**30
"""Bytes in a GiB."""


@frozen
class Source:
    """Source of figures."""

    document: str
    """The vendor's document: title, year, table."""

    read: str | None
    """Place where its figures were read in November 2026, seldom the vendor's own site; None if nowhere."""


@frozen
class Peak:
    """Operations per second / 10^12 in each format; None where the device or the source does not have it."""

    fp32: float | None
    tf32: float | None
    bf16: float | None
    fp16: float | None
    source: Source
    """Where all of these figures are from."""
    memory_gib: float | None = None
    """Memory of the whole device in GiB, which vendors call GB; a driver reports a little less."""
    parts: int = 1
    """Number of parts of a device that reports the same name for itself as for each part; the figures are
    those of one part."""
    in_fp32: tuple[str, ...] = ()
    """Formats that the device does not have and computes by its fp32 instructions. A format without a figure
    that is not among them may be missing in the source only."""

    def in_format(self, format: str) -> float | None:
        """Operations per second, of one part."""
        known = {"fp32": self.fp32, "tf32": self.tf32, "bf16": self.bf16, "fp16": self.fp16}
        tera = known.get(format)  # a journal may state any
        return None if tera is None else tera * TERA

    def bound_in_format(self, format: str) -> float | None:
        """The same, of a format that the device does not have the figure of fp32; None if unknown."""
        return self.in_format("fp32" if format in self.in_fp32 else format)


_QUOTED_BY_LIGHTNING = "quoted in github.com/Lightning-AI/pytorch-lightning, fabric/utilities/throughput.py"
_QUOTED_BY_BEKMAN = "quoted in github.com/stas00/ml-engineering, compute/accelerator"

_V100 = Source("NVIDIA V100 Tensor Core GPU data sheet, 2020", _QUOTED_BY_LIGHTNING)
_T4 = Source("NVIDIA T4 Tensor Core GPU data sheet, 2019", _QUOTED_BY_LIGHTNING)
_A100 = Source(
    "NVIDIA A100 Tensor Core GPU data sheet, 2021; half of each figure with sparsity",
    "quoted in glennklockwood.com/garden/processors/A100; SXM4 also in NVIDIA's Ampere Architecture In-Depth",
)
_A100_64 = Source(
    "Turisini et al., LEONARDO, arXiv 2307.16885, 2023: A100 with 124 multiprocessors instead of 108", None
)
_A30 = Source("NVIDIA A30 Tensor Core GPU data sheet, 2021; half of each figure with sparsity", None)
_RTX_4090 = Source(
    "NVIDIA Ada GPU Architecture white paper 2.1, appendix A; fp16 with fp32 accumulation",
    "fp32 and 16 bits quoted by others; tf32 nowhere",
)
_L40S = Source(
    "NVIDIA L40S data sheet, 2023; as printed without sparsity, though half of 733 with it is 366.5",
    "copied at mullet.se, product 355414",
)
_L4 = Source("NVIDIA L4 data sheet, 2023; half of each figure with sparsity", "quoted from Cisco's copy")
_H100 = Source(
    "NVIDIA H100 Tensor Core GPU Architecture white paper 1.04, table 2",
    "SXM5 in glennklockwood.com/garden/processors/h100; PCIe, rounded, in archive-lib.hpctech.co.jp",
)
_H100_NVL = Source(
    "NVIDIA H100 Tensor Core GPU data sheet, 2024; half of each figure with sparsity",
    "quoted from nvidia.com/en-us/data-center/h100 and from PNY's copy of the data sheet",
)
_H200 = Source(
    "NVIDIA H200 Tensor Core GPU data sheet, 2024; half of each figure with sparsity",
    "quoted from nvidia.com/en-us/data-center/h200",
)
_GH200 = Source(
    "NVIDIA GH200 Grace Hopper Superchip data sheet, 2023; half of each figure with sparsity",
    _QUOTED_BY_BEKMAN,
)
_BLACKWELL = Source(
    "NVIDIA Blackwell data sheet, 2025, individual GPU; half of each tensor figure, which are with sparsity",
    "copied at zdszero.github.io/Computer/Artificial_Intelligence/Hardware.html",
)
_B300 = Source(
    "NVIDIA HGX B300 data sheet, 2025; an eighth, and half of each tensor figure, which are with sparsity",
    "quoted in glennklockwood.com/garden/processors/B300",
)
_GB300 = Source(
    "NVIDIA GB300 NVL72 data sheet, 2025, divided by 72; half of each tensor figure, which are with sparsity",
    "quoted in verda.com/blog/gb300-nvl72-architecture",
)
_RTX_5090 = Source(
    "NVIDIA RTX Blackwell GPU Architecture white paper 1.1, table 3; fp16 with fp32 accumulation",
    "16 bits quoted by others, with the pages, 46 to 48; fp32 and tf32 nowhere",
)
_CDNA_3 = Source(
    "AMD, Introducing AMD CDNA 3 Architecture, white paper 2258402-B, 2025, specifications; matrix figures",
    "a copy of its text; MI300X also in github.com/ROCm/ROCm, docs/conceptual/gpu-arch/mi300.md",
)
_MI250X = Source(
    "AMD, Introducing AMD CDNA 3 Architecture, white paper 2258402-B, 2025, endnote MI325-019; matrix "
    "figures, one of the two dies",
    "a copy of its text",
)
_MI210 = Source("AMD Instinct MI210 data sheet, 2022, matrix figures", None)
_MI355X = Source(
    "AMD Instinct MI355X data sheet, 2025, matrix figures",
    f"fp32, and 16 bits as 2.5 PFLOPS, {_QUOTED_BY_BEKMAN}",
)
_ASCEND_910 = Source(
    "Huawei, press release on the Ascend 910, 23 August 2019",
    "quoted in pureai.com/articles/2019/09/03/nws-huawei-ascend-910-processor.aspx",
)
_ASCEND_910B = Source(
    "Huawei, torchtitan-npu, 2026, get_peak_flops; of the matrix units, without the vector units",
    "in itself",
)
_GAUDI_2 = Source(
    "Intel, Gaudi 3 AI Accelerator, Hot Chips 2024, table of the product generations",
    "a copy of its text, sgpjbg.com/baogao/465025.html",
)
_GAUDI_3 = Source(
    "Intel, Gaudi 3 AI Accelerator white paper 817486, 2025, table 5; 1835, at a higher clock, was announced",
    f"quoted by others; the clock, with 1677, {_QUOTED_BY_BEKMAN}",
)
_MAX = Source(
    "Intel Data Center GPU Max Series product brief, 2023; one of the two stacks with all 512 engines, "
    "though one with 448 of them, as Aurora's, bears the same name",
    None,
)

_MAX_1100 = Source(
    "Intel Data Center GPU Max Series product brief, 2023; 448 engines at 1.55 GHz",
    "the engines in github.com, as torch.xpu reports them; the clock nowhere",
)

_VOLTA_TURING = ("tf32", "bf16")
"""Formats whose tensor cores came with Ampere (NVIDIA A100 Tensor Core GPU Architecture white paper)."""

PEAKS: Mapping[str, Peak] = {
    "Tesla V100-PCIE-16GB": Peak(14, None, None, 112, _V100, memory_gib=16, in_fp32=_VOLTA_TURING),
    "Tesla V100-PCIE-32GB": Peak(14, None, None, 112, _V100, memory_gib=32, in_fp32=_VOLTA_TURING),
    "Tesla V100-SXM2-16GB": Peak(15.7, None, None, 125, _V100, memory_gib=16, in_fp32=_VOLTA_TURING),
    "Tesla V100-SXM2-32GB": Peak(15.7, None, None, 125, _V100, memory_gib=32, in_fp32=_VOLTA_TURING),
    "Tesla V100S-PCIE-32GB": Peak(16.4, None, None, 130, _V100, memory_gib=32, in_fp32=_VOLTA_TURING),
    "Tesla T4": Peak(8.1, None, None, 65, _T4, memory_gib=16, in_fp32=_VOLTA_TURING),
    "NVIDIA A100-PCIE-40GB": Peak(19.5, 156, 312, 312, _A100, memory_gib=40),
    "NVIDIA A100 80GB PCIe": Peak(19.5, 156, 312, 312, _A100, memory_gib=80),
    "NVIDIA A100-SXM4-40GB": Peak(19.5, 156, 312, 312, _A100, memory_gib=40),
    "NVIDIA A100-SXM4-80GB": Peak(19.5, 156, 312, 312, _A100, memory_gib=80),
    "NVIDIA A100-SXM-64GB": Peak(22.4, 179, 358, 358, _A100_64, memory_gib=64),
    "NVIDIA A30": Peak(10.3, 82, 165, 165, _A30, memory_gib=24),
    "NVIDIA GeForce RTX 4090": Peak(82.6, 82.6, 165.2, 165.2, _RTX_4090),
    "NVIDIA L4": Peak(30.3, 60, 121, 121, _L4, memory_gib=24),
    "NVIDIA L40S": Peak(91.6, 183, 362.05, 362.05, _L40S, memory_gib=48),
    "NVIDIA H100 PCIe": Peak(51.2, 378, 756, 756, _H100, memory_gib=80),
    "NVIDIA H100 80GB HBM3": Peak(66.9, 494.7, 989.4, 989.4, _H100, memory_gib=80),
    "NVIDIA H100 NVL": Peak(60, 417.5, 835.5, 835.5, _H100_NVL, memory_gib=94),
    "NVIDIA H200": Peak(67, 494.5, 989.5, 989.5, _H200, memory_gib=141),
    "NVIDIA H200 NVL": Peak(60, 417.5, 835.5, 835.5, _H200, memory_gib=141),
    "NVIDIA GH200 120GB": Peak(67, 494.5, 989.5, 989.5, _GH200),
    "NVIDIA GH200 480GB": Peak(67, 494.5, 989.5, 989.5, _GH200),
    "NVIDIA GH200 144G HBM3e": Peak(67, 494.5, 989.5, 989.5, _GH200, memory_gib=144),
    "NVIDIA B200": Peak(75, 1100, 2250, 2250, _BLACKWELL),
    "NVIDIA GB200": Peak(80, 1250, 2500, 2500, _BLACKWELL),
    "NVIDIA B300 SXM6 AC": Peak(75, 1125, 2250, 2250, _B300),
    "NVIDIA GB300": Peak(80, 1250, 2500, 2500, _GB300),
    "NVIDIA GeForce RTX 5090": Peak(104.8, 104.8, 209.5, 209.5, _RTX_5090),
    "AMD Instinct MI210": Peak(45.3, None, 181, 181, _MI210, memory_gib=64, in_fp32=("tf32",)),
    "AMD Instinct MI250X": Peak(47.85, None, 191.5, 191.5, _MI250X, in_fp32=("tf32",)),
    "AMD Instinct MI300A": Peak(122.6, 490.3, 980.6, 980.6, _CDNA_3),
    "AMD Instinct MI300X": Peak(163.4, 653.7, 1307.4, 1307.4, _CDNA_3, memory_gib=192),
    "AMD Instinct MI325X": Peak(163.4, 653.7, 1307.4, 1307.4, _CDNA_3, memory_gib=256),
    "AMD Instinct MI355X": Peak(157.3, None, 2516.6, 2516.6, _MI355X, memory_gib=288),
    "Ascend910A": Peak(None, None, None, 256, _ASCEND_910),
    "Ascend910B1": Peak(None, None, 373.88, None, _ASCEND_910B),
    "Ascend910B2": Peak(None, None, 353.8944, None, _ASCEND_910B),
    "Ascend910B3": Peak(None, None, 294.912, None, _ASCEND_910B),
    "Ascend910B4": Peak(None, None, 245.76, None, _ASCEND_910B),
    "Ascend910_9362": Peak(None, None, 353.8944, None, _ASCEND_910B),
    "Ascend910_9392": Peak(None, None, 353.8944, None, _ASCEND_910B),
    "GAUDI2": Peak(None, None, 432, None, _GAUDI_2),
    "GAUDI3": Peak(None, None, 1678, None, _GAUDI_3),
    "Intel(R) Data Center GPU Max 1100": Peak(22.2, 177.7, 355.5, 355.5, _MAX_1100, memory_gib=48),
    "Intel(R) Data Center GPU Max 1550": Peak(26, 209.5, 419.5, 419.5, _MAX, memory_gib=128, parts=2),
}

_BY_FOLDED_NAME = {folded_name(name): peak for name, peak in PEAKS.items()}
_FURTHER: ContextVar[Mapping[str, Peak] | None] = ContextVar("further peaks", default=None)


@contextmanager
def further_peaks(peaks: Mapping[str, Peak]) -> Iterator[None]:
    """Lists these devices as well, by their names, while the context lasts. A device that this program lists
    keeps its figures."""
    token = _FURTHER.set({folded_name(name): peak for name, peak in peaks.items()})
    try:
        yield
    finally:
        _FURTHER.reset(token)


def listed(device: str) -> Peak | None:
    """The listed figures of a device, by its name alone; None if it is not listed. Case, spaces and signs are
    ignored, so that a name that is written differently does not escape its bound."""
    name = folded_name(device)
    return _BY_FOLDED_NAME.get(name) or (_FURTHER.get() or {}).get(name)


def peak_ops_per_second(device: str, format: str, memory_bytes: int) -> float | None:
    """Peak of one device in operations per second, in a format (fp32, tf32, bf16 or fp16); None if it is
    unknown.

    A device that has the same name as its parts differs from a part by its memory, and has no known peak.
    """
    peak = listed(device)
    if peak is None or (
        peak.memory_gib and peak.parts > 1 and memory_bytes > peak.memory_gib / peak.parts * GIB
    ):
        return None
    return peak.in_format(format)
