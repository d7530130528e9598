"""What the devices of a run used while its clock ran: energy, clocks, and how long they were held back.

Summed over exactly the scored span, from what was recorded once per second. A device that reports nothing, or
not enough, is unknown, and then so is the sum over all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiperf.journal.axis import SpanAxis
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from analysis.readings.robust import all_known
from analysis.readings.telemetry import HostClock, records
from nas.frozen import frozen

LONGEST_GAP_SECONDS = 5.0
"""Longest time between two samples over which a reading is believed."""
LARGEST = 1e18
"""Largest reading that is believed, whatever its unit: in joules, a device uses it in a million years."""

MOST_DIFFERENCE = 4.0
"""Largest factor between a counter of energy and the integral of the power. Sensors that work differ by some
per cent, in a span of seconds by more; one that is read in a wrong unit differs by ten or a thousand."""

Samples = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Times of day in seconds since 1970, and values."""
Readings = Sequence[tuple[float, Mapping[str, Any]]]
"""The readings of one sensor, each with its time of day."""


@frozen
class DeviceUse:
    """One device over the span; None: not known."""

    host: str
    """Host of the device."""
    device: str
    """Its identity."""
    joules: float | None
    by_counter: bool
    """Whether the energy is from the device's own counter; otherwise its power is integrated."""
    contradictory: bool
    """Whether one of the two reports many times the energy of the other: one is wrong, and it is not known
    which."""
    mean_clock_hertz: float | None
    """Mean of the samples within the span."""
    least_clock_hertz: float | None
    mean_temperature_celsius: float | None
    """Mean of the samples within the span."""
    throttled_seconds: Mapping[str, float] | None
    """Seconds in which the device was throttled, by the driver's name of the reason; None if it never
    reported whether there was one."""
    span_seconds: float
    """Length of the spans of the legs in which a rank had the device."""


@frozen
class Usage:
    """All devices that the ranks of the run had and that can be told apart."""

    devices: tuple[DeviceUse, ...]
    missing: str
    """Why the energy is not known; empty where it is."""

    @property
    def joules(self) -> float | None:
        """Energy of the devices only, without the rest of the nodes: memory, fans, switches."""
        return None if self.missing else math.fsum(device.joules or 0.0 for device in self.devices)

    def ops_per_joule(self, operations: int) -> float | None:
        """Operations per joule, which is OPS/W; None if the energy is not known."""
        return operations / self.joules if self.joules else None


def read_usage(files: RunFiles, replay: Replay, until: float = math.inf) -> Usage:
    """What was used up to `until` seconds of the span, from the recorded files next to the journal."""
    wanted: dict[str, dict[str, None]] = {}
    nameless = 0
    begins = SpanAxis(replay.legs).begins
    counted = [leg for leg in replay.counted_legs if begins[leg.index] < until]
    for ready in [event.ready for leg in counted or replay.counted_legs for event in leg.ranks]:
        if ready.device_id:
            wanted.setdefault(ready.host, {})[ready.device_id] = None
        else:
            nameless += 1
    found = tuple(
        use
        for host, devices in sorted(wanted.items())
        for use in _of_host(files, HostClock(replay, host, until), host, devices)
    )
    return Usage(found, _missing(found, nameless))


def _missing(found: Sequence[DeviceUse], nameless: int) -> str:
    """Why the sum over all devices is not known; the first device without a figure is named."""
    if nameless or not found:
        return "no supported energy sensor" if nameless else "no rank was ready"
    without = [use for use in found if use.joules is None]
    if not without:
        return _without_first_die(found)
    more = f" and {len(without) - 1} more" if without[1:] else ""
    who = f"{without[0].device} on {without[0].host}{more}"
    if without[0].contradictory:
        return f"the energy counter and the power of {who} contradict each other"
    return f"no power of {who} is known over the whole span"


def _without_first_die(found: Sequence[DeviceUse]) -> str:
    """Why the sum lacks the energy of devices that report none; empty if it does not.

    No device runs without energy: the second die of an MI250 reports 0 W, and the first one the power of both
    (ROCm/rocm_smi_lib, issue 160). So there cannot be more second dies than first ones on a host.
    """
    for host in dict.fromkeys(use.host for use in found):
        dark = [use for use in found if use.host == host and use.span_seconds and not use.joules]
        if 2 * len(dark) > sum(use.host == host for use in found):
            return (
                f"{dark[0].device} on {host} reports no power of its own, and its first die is not in the run"
            )
    return ""


def use_over(file: Path, device: str, span: tuple[float, float]) -> DeviceUse:
    """What one device used between two times of day, from a recorded file."""
    return _use("", device, _readings(file, [device])[device], [span])


def _of_host(
    files: RunFiles, clock: HostClock, host: str, devices: Mapping[str, None]
) -> Iterator[DeviceUse]:
    """The use of the devices of a host, whose journal or telemetry may hide their names."""
    named = {files.hidden("device", device): device for device in devices}
    for name, readings in _readings(files.telemetry(host), named).items():
        yield _use(host, named[name], readings, clock.spans(named[name]))


def _readings(file: Path, devices: Iterable[str]) -> dict[str, list[tuple[float, dict[str, Any]]]]:
    """The readings of each device, each with the host's time of day."""
    samples: dict[str, list[tuple[float, dict[str, Any]]]] = {device: [] for device in devices}
    for record in records(file):
        at, told = (record or {}).get("wall_seconds"), (record or {}).get("devices")
        if not measures(at) or not isinstance(told, list):
            continue
        for reading in told:
            if isinstance(reading, dict) and reading.get("id") in samples:
                own = reading.get("wall_seconds")  # when it was read, if it says so
                samples[reading["id"]].append((float((own if measures(own) else at) or 0.0), reading))
    return samples


def _use(host: str, device: str, readings: Readings, spans: Sequence[tuple[float, float]]) -> DeviceUse:
    """What a device used, from its readings over these spans."""
    clocks = _within(column(readings, "clock_hertz"), spans)
    heat = _within(column(readings, "temperature_celsius"), spans)
    counted, integrated = _energies(readings, spans)
    contradictory = _contradict(counted, integrated)
    return DeviceUse(
        host=host,
        device=device,
        joules=None if contradictory else integrated if counted is None else counted,
        by_counter=counted is not None,
        contradictory=contradictory,
        mean_clock_hertz=float(clocks.mean()) if len(clocks) else None,
        least_clock_hertz=float(clocks.min()) if len(clocks) else None,
        mean_temperature_celsius=float(heat.mean()) if len(heat) else None,
        throttled_seconds=_throttled(readings, spans),
        span_seconds=math.fsum(last - first for first, last in spans),
    )


def joules_of(readings: Readings, spans: Sequence[tuple[float, float]]) -> float | None:
    """The energy by the counter, otherwise by the power; None if it is not known, or if they contradict each
    other."""
    counted, integrated = _energies(readings, spans)
    if _contradict(counted, integrated):
        return None
    return integrated if counted is None else counted


def _energies(readings: Readings, spans: Sequence[tuple[float, float]]) -> tuple[float | None, float | None]:
    """The energy by the counter, and by the power."""
    counter, power = column(readings, "energy_joules"), column(readings, "power_watts")
    counted = sum_over([risen(counter, span) for span in spans])
    return counted, sum_over([integrated_power(power, span) for span in spans])


def column(readings: Readings, name: str) -> Samples:
    """Times and values of those readings that have a number there, in the order of time."""
    pairs = sorted((at, float(reading[name])) for at, reading in readings if measures(reading.get(name)))
    table = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def measures(value: object) -> bool:
    """Whether it can be a reading at all: a file may have been edited."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= LARGEST


def _within(column: Samples, spans: Sequence[tuple[float, float]]) -> NDArray[np.float64]:
    """The values of the samples inside the spans."""
    times, values = column
    inside = np.zeros(len(times), dtype=bool)
    for first, last in spans:
        inside |= (times >= first) & (times <= last)
    return values[inside]


def risen(
    samples: Samples, span: tuple[float, float], longest_gap: float = LONGEST_GAP_SECONDS
) -> float | None:
    """How far a counter rose in the span; between two samples it rises evenly.

    None if it is not known around both ends, if it fell (it then started anew), or if it did not rise at all,
    because no device runs without energy.
    """
    times, values = samples
    if span[1] <= span[0]:
        return 0.0
    if not _reaches(times, span, longest_gap):
        return None
    ends = np.interp(span, times, values)
    around = slice(np.searchsorted(times, span[0], "right") - 1, np.searchsorted(times, span[1]) + 1)
    if (np.diff(values[around]) < 0).any():
        return None
    return float(ends[1] - ends[0]) or None


def integrated_power(
    samples: Samples, span: tuple[float, float], longest_gap: float = LONGEST_GAP_SECONDS
) -> float | None:
    """The integral of a power over the span; between two samples it is a straight line. None with gaps."""
    times, values = samples
    if not _reaches(times, span, longest_gap):
        return None
    inside = (times > span[0]) & (times < span[1])
    at = np.concatenate([[span[0]], times[inside], [span[1]]])
    if np.diff(at).max() > longest_gap:
        return None
    power = np.interp(at, times, values)
    return float(((power[1:] + power[:-1]) / 2 * np.diff(at)).sum())


def _reaches(times: NDArray[np.float64], span: tuple[float, float], longest_gap: float) -> bool:
    """Whether there are samples on both sides of both ends, none far away."""
    if not len(times) or times[0] > span[0] or times[-1] < span[1]:
        return False
    after = np.searchsorted(times, span)
    return all(times[min(at, len(times) - 1)] - times[max(at - 1, 0)] <= longest_gap for at in after)


def _contradict(counted: float | None, integrated: float | None) -> bool:
    """Whether the two differ by more than sensors that work. A power of 0 contradicts nothing: it is that of
    an absent sensor, or of the second die of one device."""
    if not counted or not integrated:
        return False
    low, high = sorted((counted, integrated))
    return high > MOST_DIFFERENCE * low


def sum_over(parts: Sequence[float | None]) -> float | None:
    """The sum over all legs, if each is known."""
    known = all_known(parts)
    return None if known is None else math.fsum(known)


def _throttled(readings: Readings, spans: Sequence[tuple[float, float]]) -> Mapping[str, float] | None:
    """Seconds by reason, the longest first. A reason holds from the sample that reports it to the next
    one."""
    seconds: dict[str, float] = {}
    told = False
    for (at, reading), (until, _) in pairwise(readings):
        reasons = reading.get("throttled")
        length = sum(max(0.0, min(until, last) - max(at, first)) for first, last in spans)
        if isinstance(reasons, list) and 0 < until - at <= LONGEST_GAP_SECONDS and length > 0:
            told = True
            for reason in {str(reason) for reason in reasons}:
                seconds[reason] = seconds.get(reason, 0.0) + length
    return dict(sorted(seconds.items(), key=lambda entry: -entry[1])) if told else None
