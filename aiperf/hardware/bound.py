"""Upper bound on the rate of a device: of a CPU by its instructions, of another device by its listed peak.

A run that exceeds this bound is INVALID. The bound is therefore generous: it assumes that every logical
processor of the host runs at the top clock and does the widest multiply-accumulates that it has in every
cycle. Measured ceilings are far below it, and are not used to judge a run INVALID.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import fsum

from aiperf.hardware.peak import Peak, listed
from aiperf.wire.reports import Processor, Ready

MOST_OF_THE_PEAK = 1.25
"""Factor on the listed peak. Data sheets state it for a sustained clock; for a moment a device may run
faster."""
ELEMENT_WISE = "element-wise"
"""In the place of a format: operations that are no products, such as sums, comparisons and roots."""
GAIN_ON_FP32 = 4
"""Element-wise operations for each listed operation of fp32: with packed 16-bit numbers a device computes up
to four times as many (78 instead of 19.5 TFLOPS: NVIDIA A100 Architecture white paper, 2020, table 3). A
product with its sum is two of them. A root or an exponential is one, although it takes several
instructions."""
NAMES_SHOWN = 3
"""Number of devices that a sentence names."""
TOP_HERTZ = 6.2e9
"""Top clock in Hz of a host that does not report its own, and the highest that is accepted: no CPU on sale
boosts beyond it (Intel Core i9-14900KS, 2024)."""

# Operations in a cycle for each flag of /proc/cpuinfo, a multiply-accumulate being two. x86 has two units
# that multiply and add a whole vector (Intel, Optimization Reference Manual, 2024, chapter 2; AMD, Software
# Optimization Guide for Zen 5, 2024, section 2.11). A tile instruction (AMX) does 16 x 16 x 32 products of
# bf16 or fp16 in 16 cycles (Intel's manual, chapter 20).
_FP32: Mapping[str, int] = {"sse2": 16, "avx": 32, "avx2": 32, "fma": 32, "avx512f": 64, "amx_tf32": 512}
_BF16: Mapping[str, int] = {"avx512_bf16": 128, "avx_ne_convert": 64, "amx_bf16": 1024, "amx_fp16": 1024}
# Arm has four units for vectors of 128 bits (Arm, Neoverse V2 Software Optimization Guide, section 2.1). The
# widest instruction, bfmmla, computes 2 x 2 sums of four products.
_ARM_BITS, _ARM_UNITS, _ARM_FP32, _ARM_BF16 = 128, 4, 8, 32

X86, ARM = ("x86_64", "AMD64"), ("aarch64", "arm64")
"""Names of these architectures in operating systems."""
X86_FLAGS = frozenset({*_FP32, *_BF16})
ARM_FLAGS = frozenset({"asimd", "sve", "bf16", "svebf16", "sme"})
FLAGS = X86_FLAGS | ARM_FLAGS
"""CPU flags that are recorded (`Processor.flags`), from which the bound is computed."""


def bound_ops_per_second(ranks: Iterable[Ready], format: str) -> float | None:
    """Bound in operations per second for the devices of these ranks together, in a format or ELEMENT_WISE.
    None if one of them has no known bound.

    Ranks on the CPU of one host share it, so it counts once.
    """
    bounds = [bound for bound, _ in _of_devices(ranks, format)]
    known = [bound for bound in bounds if bound is not None]
    return fsum(known) if bounds and len(known) == len(bounds) else None


def bound_of_group(ranks: Sequence[Ready], format: str) -> float | None:
    """Bound in operations per second for the ranks of one group, which share each batch, in a format or
    ELEMENT_WISE. None if none of them has a known bound.

    A device without a bound does not lift that of the devices next to it: these have their part of every
    batch, and the group waits for them.
    """
    devices = _of_devices(ranks, format)
    known = [(bound, sharing) for bound, sharing in devices if bound is not None]
    if len(known) == len(devices):
        return fsum(bound for bound, _ in known) if known else None
    # The parts of a batch differ by one example at most, so none is smaller than half of the mean one.
    return min((2 * bound * len(ranks) / sharing for bound, sharing in known), default=None)


def without_bound(ranks: Iterable[Ready], format: str) -> list[str]:
    """Names of the devices without a known bound in this format."""
    return sorted({ready.device for ready in ranks if bound_ops_per_second([ready], format) is None})


def no_bound_text(names: Sequence[str], format: str) -> str:
    """Says of such devices that impossible work of theirs would not be noticed."""
    shown = ", ".join(names[:NAMES_SHOWN]) + ", …" * (len(names) > NAMES_SHOWN)
    return f"{shown}: neither a listed peak in {format} nor a known instruction set"


def _of_devices(ranks: Iterable[Ready], format: str) -> list[tuple[float | None, int]]:
    """The bound of each device, None if unknown, and how many of the ranks share it."""
    bounds: dict[object, float | None] = {}
    sharing = Counter[object]()
    for ready in ranks:
        on_host = ready.processor is not None and listed(ready.device) is None
        device = ("host", ready.host) if on_host else ("rank", ready.rank)
        bounds[device] = bound_of_device(ready.device, ready.processor, format)
        sharing[device] += 1
    return [(bound, sharing[device]) for device, bound in bounds.items()]


def _of_elements(peak: Peak) -> float | None:
    """Listed operations per second of a device, times what element-wise work may gain. If the source has no
    fp32, its slowest format: matrix units are faster than vector units."""
    known = [most for format in ("tf32", "bf16", "fp16") if (most := peak.in_format(format)) is not None]
    most = peak.in_format("fp32") or min(known, default=None)
    return None if most is None else GAIN_ON_FP32 * most


def bound_of_device(name: str, processor: Processor | None, format: str) -> float | None:
    """Bound in operations per second of one device, or of the CPU of a host; None if unknown."""
    peak = listed(name)
    if peak is not None:  # first, so that a listed device's bound is not widened by a recorded CPU
        most = _of_elements(peak) if format == ELEMENT_WISE else peak.bound_in_format(format)
        return None if most is None else MOST_OF_THE_PEAK * most * peak.parts
    return None if processor is None else processor_ops_per_second(processor, format)


def processor_ops_per_second(processor: Processor, format: str) -> float | None:
    """Bound of a CPU: logical processors x top clock x operations of the widest instructions per cycle; None
    if its instructions are unknown."""
    if format == ELEMENT_WISE:
        fp32 = processor_ops_per_second(processor, "fp32")
        return None if fp32 is None else GAIN_ON_FP32 * fp32
    cycle = _operations_a_cycle(processor, format)
    hertz = min(processor.top_hertz or TOP_HERTZ, TOP_HERTZ)
    return None if cycle is None else processor.logical * hertz * cycle


def _operations_a_cycle(processor: Processor, format: str) -> int | None:
    """Operations of a logical processor per cycle in a format; None if the instructions of its architecture
    are not in the tables."""
    flags = set(processor.flags)
    if processor.machine in X86:
        # An emulated format is at most as fast as fp32, so the instructions of fp32 count for all formats.
        table = _FP32 if format == "fp32" else {**_FP32, **_BF16}
        return max((table[flag] for flag in flags & table.keys()), default=None)
    if processor.machine in ARM and "asimd" in flags and "sme" not in flags:
        vectors = max(_ARM_BITS, processor.vector_bits) // _ARM_BITS
        native = format != "fp32" and flags & {"bf16", "svebf16"}
        return _ARM_UNITS * vectors * (_ARM_BF16 if native else _ARM_FP32)
    return None
