"""Properties of a host's CPU as its kernel reports them, from which the bound of its speed is computed."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
from pathlib import Path

from aiperf.hardware.bound import FLAGS
from aiperf.wire.messages import Processor

CPUINFO = Path("/proc/cpuinfo")
FREQUENCIES = Path("/sys/devices/system/cpu")
# This driver reports the clock without boost as the highest: docs.kernel.org/admin-guide/pm/cpufreq.html.
WITHOUT_BOOST = "acpi-cpufreq"
PR_SVE_GET_VL, VECTOR_BYTES = 51, 0xFFFF


def see_processor() -> Processor:
    """The CPU of this host. A property that cannot be read is unknown: 0, or no flag."""
    return Processor(
        machine=platform.machine(),
        logical=os.cpu_count() or 1,
        top_hertz=_top_hertz(),
        flags=_flags(_read(CPUINFO)),
        vector_bits=_vector_bits(),
    )


def _flags(text: str) -> tuple[str, ...]:
    """Flags that the bound depends on, from the text of /proc/cpuinfo. x86 calls the line "flags", Arm
    "Features"."""
    lines = re.findall(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return tuple(sorted({flag for line in lines for flag in line.split()} & FLAGS))


def _top_hertz() -> float:
    """Highest clock rate in Hz of all logical processors; 0 if one does not report it, as in most virtual
    machines."""
    folders = sorted(FREQUENCIES.glob("cpu[0-9]*/cpufreq"))
    if not folders or any(_read(folder / "scaling_driver").strip() == WITHOUT_BOOST for folder in folders):
        return 0.0
    told = [_read(folder / "cpuinfo_max_freq").strip() for folder in folders]
    return 1e3 * max(map(int, told)) if all(map(str.isdigit, told)) else 0.0


def _vector_bits() -> int:
    """Length in bits of Arm's scalable vectors for this process (prctl(2), PR_SVE_GET_VL); 0 without them."""
    if sys.platform != "linux" or platform.machine() != "aarch64":
        return 0
    found = ctypes.CDLL(None).prctl(PR_SVE_GET_VL)
    return 8 * (found & VECTOR_BYTES) if found > 0 else 0


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
