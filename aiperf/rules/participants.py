"""Integrity of who worked: ranks, their code, clocks and formats; and whether the name, memory and CPU that a
rank states fit together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from itertools import pairwise

from aiperf.hardware.bound import ARM, ARM_FLAGS, X86, X86_FLAGS
from aiperf.hardware.device_names import reads_like, refused_letters
from aiperf.hardware.peak import GIB, PEAKS, listed
from aiperf.journal.attempts import Leg
from aiperf.journal.replay import Replay
from aiperf.rules.rule import (
    DRIFT,
    JITTER_SECONDS,
    NEVER_STARTED,
    SHOWN,
    Evidence,
    Inspection,
    inspection_of,
    unknown,
)
from aiperf.wire.clocks import CLOCK_SECONDS
from aiperf.wire.formats import PRODUCTS
from aiperf.wire.reports import Processor, Ready

TIME_OF_DAY_SECONDS = 60.0
"""Seconds by which a clock may be set during a run, or differ on the host that continues it. Work itself is
timed on clocks that nobody sets."""
INITIALISATION_SECONDS = 1800.0
"""Longest time in seconds from the first line of a leg to the start of its clock."""

MOST_PROCESSORS = 8192
"""Largest number of processors for which Linux can be built: NR_CPUS_RANGE_END in arch/x86/Kconfig, the
largest of all architectures."""
MOST_VECTOR_BITS, VECTOR_STEP_BITS = 2048, 128
"""Longest vector of Arm's SVE, and what its length is a multiple of: Stephens et al., "The ARM Scalable
Vector Extension", IEEE Micro 37(2), 2017."""
MOST_OF_THE_MEMORY = 1.02
"""Largest possible memory relative to the listed one. Less memory is not a contradiction: a part of a device,
or a device whose memory a site limits, may have the name of the whole."""
MACHINES = frozenset({*X86, *ARM, "i686", "ppc64le", "riscv64", "s390x", "loongarch64"})
"""Words of `platform.platform()` that name the architecture."""


def ranks(evidence: Evidence) -> Inspection:
    """Every rank of every group was ready before the clock started, with the same initial weights, on a
    possible device."""
    replay, contradictions = evidence.replay, list[str]()
    legs = replay.timed_legs
    if not replay.timed_ranks:
        return unknown(NEVER_STARTED)
    first = replay.timed_ranks[0].ready
    for leg in legs:
        missing = sorted(set(leg.began.ranks) - leg.devices.keys())
        contradictions += [f"rank {rank} was never ready in leg {leg.index}" for rank in missing]
        contradictions += [
            f"rank {event.ready.rank} started with different initial weights"
            for event in leg.ranks
            if event.ready.initial_weights != first.initial_weights
        ]
        contradictions += [text for event in leg.ranks for text in rank_faults(event.ready)]
        contradictions += [*_shared_devices(leg), *_too_soon(leg)]
    weights = f"; initial weights {first.initial_weights[:12]}…" if first.initial_weights else ""
    return Inspection(f"all ranks were ready{weights}", contradictions)


def _shared_devices(leg: Leg) -> Iterator[str]:
    """No device belongs to two ranks at a time, and no host has more ranks than devices that they see. A
    restarted rank takes its own place. Devices that no driver identifies, such as CPUs, are exempt."""
    owners: dict[tuple[str, str], int] = {}
    devices: dict[int, tuple[str, str]] = {}
    for event in leg.ranks:
        ready, device = event.ready, (event.ready.host, event.ready.device_id)
        # A rank that is ready again was restarted, possibly on another device: it gives up the one it had.
        if (before := devices.pop(ready.rank, None)) is not None and owners[before] == ready.rank:
            del owners[before]
        if ready.device_id:
            devices[ready.rank] = device
            if (other := owners.setdefault(device, ready.rank)) != ready.rank:
                yield f"rank {other} and rank {ready.rank} share device {ready.device_id} on {ready.host}"
    hosts = Counter(ready.host for ready in leg.devices.values() if ready.device_id)
    for ready in leg.devices.values():
        # A rank that sees one device may have been shown its own by the launcher: that number tells nothing.
        if ready.device_id and hosts[ready.host] > ready.visible_devices > 1:
            yield f"{hosts[ready.host]} ranks share the {ready.visible_devices} devices on {ready.host}"
            return


def _too_soon(leg: Leg) -> Iterator[str]:
    """Ranks that were ready sooner after their start than their initialisation took, as if a further leg had
    been put into the one before it; and ranks that were restarted although that is impossible."""
    seen = set[int]()
    for event, (_, waited) in zip(leg.ranks, leg.arrivals):
        ready = event.ready
        if waited < ready.seconds / (1 + DRIFT) - JITTER_SECONDS:
            took = f"its initialisation took {ready.seconds:.1f} s"
            yield f"rank {ready.rank} was ready {waited:.1f} s after its start, but {took}"
        if ready.rank in seen and leg.began.backend == "horovod":
            yield f"rank {ready.rank} was restarted, which Horovod does not allow"
        seen.add(ready.rank)


def code(evidence: Evidence) -> Inspection:
    """The master and all ranks ran the same program. A hash says that the code was the same, not that it was
    the published one."""
    opened, replay = evidence.replay.opened, evidence.replay
    contradictions = [
        f"rank {event.ready.rank} on {event.ready.host} ran different code"
        for event in replay.timed_ranks
        if event.ready.code_hash != opened.code_hash
    ]
    if not opened.code_hash:
        contradictions.append("the hash of the code was not recorded")
    text = f"aiperf-hpc {opened.program}, code {opened.code_hash[:12]}…"
    return inspection_of(replay.timed_legs, NEVER_STARTED, text, contradictions)


def clocks(evidence: Evidence) -> Inspection:
    """The times of day of the hosts agree, and so do the starts of the legs and the reports of the ranks."""
    read = [(event.ready.host, event.clock) for event in evidence.replay.timed_ranks]
    wrong = sorted(
        {(host, abs(clock.offset_seconds)) for host, clock in read if clock.least_seconds > CLOCK_SECONDS}
    )
    contradictions = [f"the clock of {host} is {offset:.1f} s off" for host, offset in wrong]
    contradictions += _no_times(evidence.replay)
    if not read:
        return unknown(NEVER_STARTED, contradictions)
    if unsure := [(clock.uncertainty_seconds, host) for host, clock in read if not clock.known]:
        seconds, host = max(unsure)
        text = f"the clock of {host} is known only to {seconds:.1f} s, because each of its answers was late"
        return unknown(text, contradictions)
    if not contradictions and (doubts := [*_overlaps(evidence.replay), *_pauses(evidence.replay)]):
        why = "a clock was set, the host was suspended, or the journal was changed"
        return unknown(f"{'; '.join(doubts[:SHOWN])}: {why}")
    most = max(abs(clock.offset_seconds) + clock.uncertainty_seconds for _, clock in read)
    return Inspection(f"clocks differ by at most {most:.3f} s", contradictions)


def _no_times(replay: Replay) -> Iterator[str]:
    """Legs whose start is no time of day with a time zone."""
    for leg in replay.legs:
        try:
            if datetime.fromisoformat(leg.began.started).tzinfo is None:
                raise ValueError("it has no time zone")
        except ValueError as error:
            yield f"the start time of leg {leg.index} is not valid: {error}"


def _overlaps(replay: Replay) -> Iterator[str]:
    """Legs that began, by the time of day, before the previous one was over."""
    for leg, following in pairwise(replay.legs):
        began = [datetime.fromisoformat(each.began.started) for each in (leg, following)]
        between = (began[1] - began[0]).total_seconds() - leg.last
        if between < -TIME_OF_DAY_SECONDS:
            yield f"leg {following.index} began {-between:.0f} s before the last line of leg {leg.index}"


def _pauses(replay: Replay) -> Iterator[str]:
    """Ranks whose hosts had a later time of day than their leg: between its start and their report more time
    passed than the leg accounts for."""
    for leg in replay.legs:
        began = datetime.fromisoformat(leg.began.started).timestamp()
        for event, (t, _) in zip(leg.ranks, leg.arrivals):
            later = event.ready.wall_seconds - event.clock_offset_seconds - began - t
            if later > TIME_OF_DAY_SECONDS:
                who = f"rank {event.ready.rank} was ready {later:.0f} s later"
                yield f"{who} by the time of day than by leg {leg.index}"


def initialisation(evidence: Evidence) -> Inspection:
    """The time before the clock starts is limited, because no work is counted in it."""
    took = [leg.released - leg.first for leg in evidence.replay.legs if leg.released is not None]
    wrong = [
        f"it took {seconds:.0f} s; at most {INITIALISATION_SECONDS:.0f} s are allowed"
        for seconds in took
        if seconds > INITIALISATION_SECONDS
    ]
    return inspection_of(took, NEVER_STARTED, f"took at most {max(took, default=0.0):.0f} s", wrong)


def precision(evidence: Evidence) -> Inspection:
    """Every rank multiplied in the declared format in the test before the span. The products of the test were
    computed with numbers whose result shows the format (`aiperf.measuring.precision`)."""
    declared, ranks = evidence.config.training.format, [e.ready for e in evidence.replay.timed_ranks]
    wrong = [text for ready in ranks for text in format_faults(declared, ready)]
    wrong += [
        f"rank {ready.rank} on {ready.host} did not record the format of a {kind}"
        for ready in ranks
        for kind in PRODUCTS
        if kind not in ready.multiplies
    ]
    text = f"matrix products and convolutions ran in {declared} on every rank"
    return inspection_of(ranks, NEVER_STARTED, text, wrong)


def format_faults(format: str, ready: Ready) -> list[str]:
    """Products that a rank computes in another format than declared.

    If TF32 is declared, a library may still choose fp32, which is wider.
    """
    fitting = (format, "fp32") if format == "tf32" else (format,)
    declared, who = f"training.format is {format}", f"rank {ready.rank} on {ready.host}"
    wrong = [
        f"{declared}, but {who} computed a {kind} in {seen}"
        for kind, seen in ready.multiplies.items()
        if seen not in fitting
    ]
    if ready.formats and format not in ready.formats:
        wrong.insert(0, f"{declared}, which {who} does not support")
    return wrong


def rank_faults(ready: Ready) -> Iterator[str]:
    """Contradictory or impossible statements of a rank, as sentences."""
    who = f"rank {ready.rank} on {ready.host}"
    yield from (f"{who}: {text}" for text in _name_faults(ready.device))
    yield from (f"{who}: {text}" for text in _memory_faults(ready))
    if not ready.seconds >= 0 or ready.visible_devices < 0:
        yield f"{who} reports {ready.seconds:.6g} s until it was ready, and {ready.visible_devices} devices"
    if ready.processor is not None:
        if listed(ready.device) is not None:
            yield f"{who}: its device is {ready.device}, but it reports a processor"
        yield from (f"{who}: {text}" for text in processor_faults(ready.processor))
        yield from (f"{who}: {text}" for text in _system_faults(ready.processor, ready))


@lru_cache(maxsize=1024)  # thousands of ranks have one name
def _name_faults(device: str) -> tuple[str, ...]:
    """What is wrong with the name of a device: letters that look like others, or a listed name that is spelt
    in another way."""
    found = list[str]()
    if letters := refused_letters(device):
        found.append(f"its device name contains {', '.join(letters[:2])}, which looks like another letter")
    if other := next((name for name in PEAKS if reads_like(device, name)), None):
        found.append(f"its device name {device!r} looks like {other}, but differs from it")
    return tuple(found)


def _memory_faults(ready: Ready) -> Iterator[str]:
    """A device has memory, and not more than the listed device of its name."""
    device, gib = listed(ready.device), ready.memory_bytes / GIB
    if ready.memory_bytes < 1:
        yield f"its device has {ready.memory_bytes} bytes of memory"
    if device is None or device.memory_gib is None:
        return
    if gib > MOST_OF_THE_MEMORY * device.memory_gib:
        yield f"{ready.device} has {device.memory_gib:g} GiB of memory, not {gib:.4g}"


def processor_faults(processor: Processor) -> Iterator[str]:
    """What no processor has, as clauses: each would widen its bound."""
    if not 1 <= processor.logical <= MOST_PROCESSORS or not processor.top_hertz >= 0:
        yield f"it reports {processor.logical} processors at {processor.top_hertz:.3g} Hz"
    if not 0 <= processor.vector_bits <= MOST_VECTOR_BITS or processor.vector_bits % VECTOR_STEP_BITS:
        yield f"it reports vectors of {processor.vector_bits} bits"
    foreign = frozenset[str]()
    if processor.machine in (*X86, *ARM):
        foreign = ARM_FLAGS if processor.machine in X86 else X86_FLAGS
    if strange := sorted(foreign.intersection(processor.flags)):
        yield f"its processor is {processor.machine}, which has no {strange[0]}"


def _system_faults(processor: Processor, ready: Ready) -> Iterator[str]:
    """A processor of another architecture than the operating system of its host."""
    known = MACHINES.intersection(ready.software.get("system", "").split("-"))
    if known and processor.machine not in known:
        yield f"its processor is {processor.machine}, but its system is {ready.software['system']:.80}"
