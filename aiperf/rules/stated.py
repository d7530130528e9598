"""Checks of what a rank states about itself: its device's name, memory and CPU must fit together."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from aiperf.hardware.bound import ARM, ARM_FLAGS, X86, X86_FLAGS
from aiperf.hardware.device_names import reads_like, refused_letters
from aiperf.hardware.peak import GIB, PEAKS, listed
from aiperf.wire.messages import Processor, Ready

MOST_PROCESSORS = 8192
"""Largest number of processors for which Linux can be built: NR_CPUS_RANGE_END in arch/x86/Kconfig, the
largest of all architectures."""
MOST_OF_THE_MEMORY = 1.02
"""Largest possible memory relative to the listed one. Less memory is not a contradiction: a part of a device,
or a device whose memory a site limits, may have the name of the whole."""
MACHINES = frozenset({*X86, *ARM, "i686", "ppc64le", "riscv64", "s390x", "loongarch64"})
"""Words of `platform.platform()` that name the architecture."""


def of_rank(ready: Ready) -> Iterator[str]:
    """Contradictory or impossible statements of a rank, as sentences."""
    who = f"rank {ready.rank} on {ready.host}"
    yield from (f"{who}: {text}" for text in _of_name(ready.device))
    yield from (f"{who}: {text}" for text in _of_memory(ready))
    if not ready.seconds >= 0 or ready.visible_devices < 0:
        yield f"{who} reports {ready.seconds:.6g} s until it was ready, and {ready.visible_devices} devices"
    if ready.processor is not None:
        if listed(ready.device) is not None:
            yield f"{who}: its device is {ready.device}, but it reports a processor"
        yield from (f"{who}: {text}" for text in _of_processor(ready.processor, ready))


@lru_cache(maxsize=1024)  # thousands of ranks have one name
def _of_name(device: str) -> tuple[str, ...]:
    found = list[str]()
    if letters := refused_letters(device):
        found.append(f"its device name contains {', '.join(letters[:2])}, which looks like another letter")
    if other := next((name for name in PEAKS if reads_like(device, name)), None):
        found.append(f"its device name {device!r} looks like {other}, but differs from it")
    return tuple(found)


def _of_memory(ready: Ready) -> Iterator[str]:
    device, gib = listed(ready.device), ready.memory_bytes / GIB
    if ready.memory_bytes < 1:
        yield f"its device has {ready.memory_bytes} bytes of memory"
    if device is None or device.memory_gib is None:
        return
    if gib > MOST_OF_THE_MEMORY * device.memory_gib:
        yield f"{ready.device} has {device.memory_gib:g} GiB of memory, not {gib:.4g}"


def _of_processor(processor: Processor, ready: Ready) -> Iterator[str]:
    if not 1 <= processor.logical <= MOST_PROCESSORS or not processor.top_hertz >= 0:
        yield f"it reports {processor.logical} processors at {processor.top_hertz:.3g} Hz"
    known = MACHINES.intersection(ready.software.get("system", "").split("-"))
    if known and processor.machine not in known:
        yield f"its processor is {processor.machine}, but its system is {ready.software['system']:.80}"
    foreign = (
        ARM_FLAGS if processor.machine in X86 else X86_FLAGS if processor.machine in ARM else frozenset()
    )
    if strange := sorted(foreign.intersection(processor.flags)):
        yield f"its processor is {processor.machine}, which has no {strange[0]}"
