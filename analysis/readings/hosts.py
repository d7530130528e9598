"""The ranks of a run in tables of words: hosts, devices, the control, clocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from aiperf.journal.events import RankReady
from aiperf.journal.replay import Replay
from aiperf.wire.messages import Control
from aiperf.wording import figure
from analysis.table import Cell, Table

RANKS_SHOWN = 64
"""One by one; beyond, hosts are shown."""


def hosts(replay: Replay) -> Table:
    """One row a rank, of many ranks one a host: its devices and how the control ran there."""
    ranks = {event.ready.rank: event for leg in replay.legs for event in leg.ranks}
    return _by_host(replay, ranks) if len(ranks) > RANKS_SHOWN else _by_rank(replay, ranks)


def _by_host(replay: Replay, ranks: Mapping[int, RankReady]) -> Table:
    controls = _controls(replay)
    of_host: dict[str, list[RankReady]] = {}
    for event in ranks.values():
        of_host.setdefault(event.ready.host, []).append(event)
    cells: list[list[Cell]] = []
    for host, events in sorted(of_host.items()):
        rates = [controls[e.ready.rank].images_per_second for e in events if e.ready.rank in controls]
        clock = max((e.clock_offset_seconds for e in events), key=abs)
        devices = Counter(event.ready.device for event in events)
        named = ", ".join(f"{num} × {device}" for device, num in sorted(devices.items()))
        slowest, together = (_rate(function(rates) if rates else None) for function in (min, sum))
        cells.append([host, named, slowest, together, _offset(clock)])
    columns = ("host", "devices", "control, slowest", "control, all", "clock")
    return Table.of(columns, cells, (False, False, True, True, True))


def control_sizes(replay: Replay) -> str:
    """ "224²", or "64² and 112²" where devices were too slow for more: sides of the control's images."""
    sizes = sorted({control.size for control in _controls(replay).values()})
    return " and ".join(f"{size}²" for size in sizes)


def _controls(replay: Replay) -> Mapping[int, Control]:
    return next((leg.controls for leg in replay.legs if leg.controls), {})


def _by_rank(replay: Replay, ranks: Mapping[int, RankReady]) -> Table:
    controls = _controls(replay)
    cells: list[list[Cell]] = []
    for rank, event in sorted(ranks.items()):
        host, device, control = event.ready.host, event.ready.device, controls.get(rank)
        rate = _rate(None if control is None else control.images_per_second)
        clock = _offset(event.clock_offset_seconds)
        cells.append([str(rank), host, str(event.group), device, rate, clock])
    columns = ("rank", "host", "group", "device", "control", "clock")
    return Table.of(columns, cells, (True, False, True, False, True, True))


def _rate(images_per_second: float | None) -> Cell:
    if images_per_second is None:
        return "not measured", 0.0
    return f"{figure(images_per_second)} images/s", images_per_second


def _offset(seconds: float) -> Cell:
    return f"{1000 * seconds:+.1f} ms", seconds
