"""The CPU of a host as one device, whose cores the ranks of the host share, and its properties as the kernel
reports them, from which the bound of its speed is computed."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import psutil
import torch

from aiperf.device import cgroup
from aiperf.device.device import Device
from aiperf.errors import WorldError
from aiperf.hardware.bound import FLAGS
from aiperf.hardware.cpu_names import read_processor_name
from aiperf.hardware.device_names import visible_name
from aiperf.host import variables
from aiperf.host.cores import allowed_cores
from aiperf.wire.reports import Processor
from nas.bounded import system_text
from nas.frozen import frozen

CPUINFO = Path("/proc/cpuinfo")
FREQUENCIES = Path("/sys/devices/system/cpu")
"""A folder for each logical processor, with the clock rates that its driver reports."""
CACHES = FREQUENCIES / "cpu0" / "cache"
# This driver reports the clock without boost as the highest: docs.kernel.org/admin-guide/pm/cpufreq.html.
WITHOUT_BOOST = "acpi-cpufreq"
# The request of prctl(2), and the bits of its answer that are the length of a vector (linux/prctl.h).
PR_SVE_GET_VL, VECTOR_BYTES = 51, 0xFFFF


def see_processor() -> Processor:
    """The CPU of this host. A property that cannot be read is unknown: 0, or no flag."""
    return Processor(
        machine=platform.machine(),
        logical=os.cpu_count() or 1,
        top_hertz=_top_hertz(),
        flags=_flags(system_text(CPUINFO)),
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
    if not folders or any(
        system_text(folder / "scaling_driver").strip() == WITHOUT_BOOST for folder in folders
    ):
        return 0.0
    told = [system_text(folder / "cpuinfo_max_freq").strip() for folder in folders]
    return 1e3 * max(map(int, told)) if all(map(str.isdigit, told)) else 0.0


def _vector_bits() -> int:
    """Length in bits of Arm's scalable vectors for this process (prctl(2), PR_SVE_GET_VL); 0 without them."""
    if sys.platform != "linux" or platform.machine() != "aarch64":
        return 0
    found = ctypes.CDLL(None).prctl(PR_SVE_GET_VL)
    return 8 * (found & VECTOR_BYTES) if found > 0 else 0


STATED = "OMP_NUM_THREADS"
"""Variable by which the user chooses the number of threads; if it is set, none is measured."""


@frozen
class Cpu(Device):
    """All cores of a rank as one device. Whatever is submitted to it is done when the call returns, so it
    needs no queues and no waiting."""

    kind: ClassVar[str] = "cpu"
    backend: ClassVar[str] = "gloo"

    @classmethod
    def count(cls) -> int:
        return 1

    @classmethod
    def bind(cls, index: int, ranks_on_host: int = 1) -> Device:
        """Binds the host's CPU, and shares its cores among the ranks unless the user has chosen the
        threads."""
        if index:
            raise WorldError(f"cpu device {index} requested; a host has only cpu device 0")
        if not _is_stated():
            torch.set_num_threads(_own_cores(ranks_on_host))
        name = read_processor_name() or platform.processor() or platform.machine()
        return cls(0, visible_name(name), int(min(psutil.virtual_memory().total, cgroup.memory_bytes())))

    @property
    def formats(self) -> tuple[str, ...]:
        """The formats of a CPU. fp16 is left out, because it is slower than fp32 by orders of magnitude."""
        return ("bf16", "fp32")

    @property
    def torch(self) -> torch.device:
        return torch.device(self.kind)

    @property
    def processor(self) -> Processor:
        return see_processor()

    @property
    def thread_counts(self) -> tuple[int, ...]:
        """Numbers of threads to choose from: all cores of this rank, one less, and halves down to one."""
        if _is_stated():
            return ()
        own = torch.get_num_threads()
        halves = (own >> times for times in range(own.bit_length()))
        return tuple(sorted({*halves, max(1, own - 1)}))

    @property
    def threads(self) -> int:
        return torch.get_num_threads()

    def use_threads(self, count: int) -> None:
        torch.set_num_threads(count)

    @contextmanager
    def reproducible(self) -> Iterator[None]:
        """One thread, because sums that threads share depend on how many there are."""
        count = self.threads
        self.use_threads(1)
        try:
            with super().reproducible():
                yield
        finally:
            self.use_threads(count)

    @property
    def traits(self) -> dict[str, str]:
        """Libraries divide matrices by the sizes of the caches."""
        sizes = (system_text(path).strip() for path in sorted(CACHES.glob("index*/size")))
        return super().traits | {"caches": " ".join(filter(re.compile(r"\d{1,9}[KMG]?").fullmatch, sizes))}

    def enter_thread(self) -> None:
        """Does nothing: a CPU is the same to all threads."""

    def synchronise(self) -> None:
        """Does nothing: on a CPU, a call returns when its work is done."""

    def clean(self) -> None:
        """Returns freed memory to the system, if the allocator is glibc's; others do so by themselves."""
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def _is_stated() -> bool:
    """Whether OMP_NUM_THREADS is set to a number, or to a list with one number per level of nesting; OpenMP
    ignores anything else."""
    return (variables.number(variables.word(os.environ, STATED).split(",")[0]) or 0) > 0


def _own_cores(ranks_on_host: int) -> int:
    """Number of cores for this rank: those to which the launcher has bound it, otherwise its share of the
    host's. It is at most the rank's share of a container's limit, because the kernel stops all threads of a
    container that uses more."""
    bound, all_cores = allowed_cores(), os.cpu_count() or 1
    own = bound if bound < all_cores else all_cores // ranks_on_host
    return max(1, int(min(own, cgroup.cores() / ranks_on_host)))
