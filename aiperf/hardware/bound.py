"""Upper bound on the rate of a device: of a CPU by its instructions, of another device by its listed peak.

A run that exceeds this bound is INVALID. The bound is therefore generous: it assumes that every logical
processor of the host runs at the top clock and does the widest multiply-accumulates that it has in every
cycle. Measured ceilings are far below it, and are not used to judge a run INVALID.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import fsum

from aiperf.hardware.peak import listed
from aiperf.wire.messages import Processor, Ready

MOST_OF_THE_PEAK = 1.25
"""Factor on the listed peak. Data sheets state it for a sustained clock; for a moment a device may run
faster."""
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
    """Bound in operations per second for the devices of these ranks together, in a format. None if one of
    them has no known bound.

    Ranks on the CPU of one host share it, so it counts once.
    """
    bounds: dict[object, float | None] = {}
    for ready in ranks:
        peak = listed(ready.device)
        if peak is not None:  # first, so that a listed device's bound is not widened by a recorded CPU
            most = peak.in_format(format)
            bounds["rank", ready.rank] = None if most is None else MOST_OF_THE_PEAK * most * peak.parts
        elif ready.processor is not None:
            bounds["host", ready.host] = processor_ops_per_second(ready.processor, format)
        else:
            bounds["rank", ready.rank] = None
    known = [bound for bound in bounds.values() if bound is not None]
    return fsum(known) if bounds and len(known) == len(bounds) else None


def processor_ops_per_second(processor: Processor, format: str) -> float | None:
    """Bound of a CPU: logical processors x top clock x operations of the widest instructions per cycle; None
    if its instructions are unknown."""
    cycle = _operations_a_cycle(processor, format)
    hertz = min(processor.top_hertz or TOP_HERTZ, TOP_HERTZ)
    return None if cycle is None else processor.logical * hertz * cycle


def _operations_a_cycle(processor: Processor, format: str) -> int | None:
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
