"""The energy of a run by level: what of the machine a figure includes.

Levels are never compared with each other: a figure of the devices alone is twice that of the nodes that they
are in. Each level is measured by itself, and is unknown where its samples do not cover the whole span.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.wording import percent, scaled
from analysis.readings import usage as devices
from analysis.readings.hosts import nodes_of
from analysis.readings.power_file import (
    LONGEST_GAP_SECONDS,
    WATTS,
    PowerFile,
    PowerFileError,
    power_text,
    read_power,
)
from analysis.readings.telemetry import HostClock, records
from analysis.readings.usage import Samples, Usage, read_usage
from nas.frozen import frozen

LEAST_SAMPLES = 10
"""Samples of a site's meter in a leg: in a short one they must lie closer together than the longest gap."""
SHORTEST_GAP_SECONDS = devices.LONGEST_GAP_SECONDS
"""Gap that is always allowed: that of the program's own sensors, which are read once per second."""
DIFFERENCE_OF_METERS = 0.02
"""Share by which meters of one machine may differ: by so much a level may seem to use less than the one that
it includes."""

NODE_VALUES = {"power_watts", "energy_joules"}
"""What a meter of a node reports; a node may have a sensor of its processors alone."""

Span = tuple[float, float]


class Level(Enum):
    """What is measured; the value says it in words."""

    L0 = "devices only"
    L1 = "nodes"
    L2 = "nodes, network and storage"

    @property
    def text(self) -> str:
        """ "L1, nodes"."""
        return f"{self.name}, {self.value}"


@frozen
class Energy:
    """Energy of one level over the span."""

    level: Level
    """What the energy includes."""
    joules: float | None
    missing: str
    """Why the energy is not known; empty where it is."""
    source: str
    """By what it was measured."""
    coverage: float | None = None
    """Least share of the span that the samples of one meter cover; None if no meter of a site was read."""

    def ops_per_joule(self, operations: int) -> float | None:
        """Operations per joule, which is OPS/W; None if the energy is not known."""
        return operations / self.joules if self.joules else None


def read_energy(
    files: RunFiles,
    replay: Replay,
    until: float = math.inf,
    usage: Usage | None = None,
    given: tuple[Level, Path] | None = None,
) -> tuple[Energy, ...]:
    """The energy up to `until` seconds of the span: of L0 always, of L1 and L2 where somebody measured it.

    `usage` is that of the devices, where it has been read already. `given` is a file of the site's meters
    that is read in place of the one next to the journal.
    """
    used = usage or read_usage(files, replay, until)
    sampled = any(not use.by_counter for use in used.devices)
    own = "samples of the devices' power" if sampled else "the devices' own counters"
    found = [Energy(Level.L0, used.joules, used.missing, own)]
    for level in (Level.L1, Level.L2):
        path, where = files.power(level.name), f"power/{level.name}.csv"
        if given is not None and given[0] is level:
            path, where = given[1], str(given[1])
        measured = _by_site(level, files, replay, until, path, where)
        if measured is None and level is Level.L1:
            measured = _by_nodes(files, replay, until)
        if measured is not None:
            found.append(_not_below(found, measured))
    return tuple(found)


def energy_at(level: Level, found: Sequence[Energy]) -> Energy:
    """The energy at a level, which is unknown if nobody measured it."""
    nobody = Energy(level, None, f"no {level.name} power was measured", "")
    return next((each for each in found if each.level is level), nobody)


def site_spans(replay: Replay, until: float = math.inf) -> dict[int, Span]:
    """The span of each leg in the time of day of the master, which is taken for that of the site's meter."""
    return HostClock(replay, "", until).leg_spans


def meter_of(host: str, meters: Mapping[str, Samples], files: RunFiles) -> str | None:
    """The name of the meter of a host: its own, as it is or as the journal hides it, or the only one that
    has the same first label (`node5` and `node5.example.org`)."""
    for name in (files.hidden("host", host), host):
        if name in meters:
            return name
    label = host.partition(".")[0]
    alike = [name for name in meters if name.partition(".")[0] == label]
    return alike[0] if len(alike) == 1 else None


def kept_power(files: RunFiles, replay: Replay, level: Level, path: Path) -> str:
    """A file of the site's meters as it is kept next to the journal and published: only the samples of the
    span, of L1 only the nodes of the run, and names as the journal hides them. A site's own file has its
    other nodes and days as well. Raises PowerFileError."""
    power = read_power(path, list(site_spans(replay).values()))
    names = {meter: meter for meter in power.meters}
    if level is Level.L1 and "" not in names:
        hosts = {host for leg in replay.counted_legs for host in nodes_of(leg)}
        found = {meter_of(host, power.meters, files): host for host in hosts}
        names = {meter: found[meter] for meter in names if meter in found}
        power = replace(power, meters={meter: power.meters[meter] for meter in names})
    return power_text(power, lambda meter: files.hidden("host", names[meter]))


def longest_gap(span: Span) -> float:
    """Longest time between two samples of a site's meter in this span, in seconds."""
    return min(LONGEST_GAP_SECONDS, max(SHORTEST_GAP_SECONDS, (span[1] - span[0]) / LEAST_SAMPLES))


def coverage(samples: Samples, spans: Sequence[Span]) -> float:
    """The share of the spans that lies between two samples that are near enough to each other."""
    times = samples[0]
    covered = 0.0
    for first, last in spans:
        if math.isfinite(last - first):
            near = np.diff(times) <= longest_gap((first, last))
            overlap = np.minimum(times[1:], last) - np.maximum(times[:-1], first)
            covered += float(np.clip(overlap, 0.0, None)[near].sum())
    whole = math.fsum(last - first for first, last in spans)
    return min(1.0, covered / whole) if 0 < whole < math.inf else 0.0


def _by_site(
    level: Level, files: RunFiles, replay: Replay, until: float, path: Path, where: str
) -> Energy | None:
    """By a file of the site's meters, which is called `where`; None if there is none."""
    spans = site_spans(replay, until)
    if path == files.power(level.name) and not path.exists():
        return None
    source = f"the site's meters, {where}"
    try:
        power = read_power(path, list(spans.values()))
    except PowerFileError as error:
        return Energy(level, None, str(error).replace(str(path), where), source, 0.0)
    measured, missing = dict[str, list[Span]](), ""
    if not power.meters:
        missing = f"{where} has no samples within the span; its times are read as UTC"
    elif level is Level.L1 and "" not in power.meters:
        for host, own in _spans_of_nodes(replay, spans).items():
            name = meter_of(host, power.meters, files)
            missing = missing or ("" if name else f"{where} has no samples of {host} within the span")
            measured[name or ""] = own
    else:
        measured = {name: list(spans.values()) for name in power.meters}
    if missing or not spans:
        return Energy(level, None, missing or "the clock never started", source, 0.0)
    return _summed(level, power, measured, source)


def _summed(level: Level, power: PowerFile, measured: Mapping[str, list[Span]], source: str) -> Energy:
    """The sum over the meters, each over the spans for which it counts. If it is not known, the meter that
    covers least is named."""
    covered = {name: coverage(power.meters[name], spans) for name, spans in measured.items()}
    least = min(covered, key=lambda name: covered[name])
    joules = list[float | None]()
    sum_of = devices.integrated_power if power.quantity == WATTS else devices.risen
    for name, spans in measured.items():
        each = [sum_of(power.meters[name], span, longest_gap(span)) for span in spans]
        joules.append(devices.sum_over(each))
        if joules[-1] is None and covered[name] > 1 - 1e-9:
            why = f"the counter{_named(name)} fell, or stood still"
            return Energy(level, None, why, source, covered[least])
    total, why = devices.sum_over(joules), ""
    if total is None:
        gap = min(longest_gap(span) for span in measured[least])
        why = (
            f"the meter{_named(least)} covers {percent(covered[least], 1)} of the span; its samples must "
            f"surround the span and be at most {gap:.3g} s apart"
        )
    return Energy(level, total, why, source, covered[least])


def _named(meter: str) -> str:
    """ " of node5"; nothing for a meter that has no name."""
    return f" of {meter}" if meter else ""


def _by_nodes(files: RunFiles, replay: Replay, until: float) -> Energy | None:
    """By the sensors of the nodes themselves, as the hosts recorded them; None if no host has one."""
    hosts = sorted({host for leg in replay.counted_legs for host in nodes_of(leg)})
    readings = {host: list(_node_readings(files, host)) for host in hosts}
    if not any(readings.values()):
        return None
    source, joules = "the nodes' own sensors (hwmon)", dict[str, float | None]()
    for host, own in readings.items():
        clock = HostClock(replay, host, until)
        spans = [span for index, span in clock.leg_spans.items() if host in nodes_of(replay.legs[index])]
        if spans:  # else it joined in a later leg
            joules[host] = devices.joules_of(own, spans)
    unknown = [host for host, value in joules.items() if value is None]
    if unknown:
        more = f" and {len(unknown) - 1} more" if unknown[1:] else ""
        why = f"no power of the node {unknown[0]}{more} is known over the whole span"
        return Energy(Level.L1, None, why, source)
    return Energy(Level.L1, devices.sum_over([*joules.values()]), "", source)


def _node_readings(files: RunFiles, host: str) -> Iterator[tuple[float, Mapping[str, Any]]]:
    """The readings of the node's own sensors, each with its time of day."""
    for record in records(files.telemetry(host), having=b'"node"'):
        reading = (record or {}).get("node")
        at = reading.get("wall_seconds") if isinstance(reading, dict) else None
        if isinstance(reading, dict) and devices.measures(at) and reading.keys() & NODE_VALUES:
            yield float(at or 0.0), reading


def _spans_of_nodes(replay: Replay, spans: Mapping[int, Span]) -> dict[str, list[Span]]:
    """The spans of the legs that each node was in."""
    found: dict[str, list[Span]] = {}
    for index, span in spans.items():
        for host in sorted(nodes_of(replay.legs[index])):
            found.setdefault(host, []).append(span)
    return found


def _not_below(lower: Sequence[Energy], found: Energy) -> Energy:
    """The energy; unknown if it is less than that of a level that it includes."""
    for each in lower:
        if found.joules is None or each.joules is None:
            continue
        if found.joules < (1 - DIFFERENCE_OF_METERS) * each.joules:
            why = (
                f"{scaled(found.joules, 'J')} by {found.source} is less than the "
                f"{scaled(each.joules, 'J')} of {each.level.text}, which it includes"
            )
            return replace(found, joules=None, missing=why)
    return found
