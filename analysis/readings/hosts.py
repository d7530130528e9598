"""The ranks of a run in tables of words: hosts, devices, the control, clocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from aiperf.journal.events import RankReady
from aiperf.journal.replay import Replay
from aiperf.wire.messages import Control
from aiperf.wording import figure
from analysis.table import Table

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
    rows: list[list[str]] = []
    keys: list[list[float | str | None]] = []
    for host, events in sorted(of_host.items()):
        rates = [controls[e.ready.rank].images_per_second for e in events if e.ready.rank in controls]
        clock = max((e.clock_offset_seconds for e in events), key=abs)
        devices = Counter(event.ready.device for event in events)
        rows.append(
            [
                host,
                ", ".join(f"{num} × {device}" for device, num in sorted(devices.items())),
                f"{figure(min(rates))} images/s" if rates else "not measured",
                f"{figure(sum(rates))} images/s" if rates else "not measured",
                f"{1000 * clock:+.1f} ms",
            ]
        )
        keys.append([host, rows[-1][1], min(rates, default=0.0), sum(rates), clock])
    columns = ("host", "devices", "control, slowest", "control, all", "clock")
    return Table(columns, rows, (False, False, True, True, True), keys)


def control_sizes(replay: Replay) -> str:
    """ "224²", or "64² and 112²" where devices were too slow for more: sides of the control's images."""
    sizes = sorted({control.size for control in _controls(replay).values()})
    return " and ".join(f"{size}²" for size in sizes)


def _controls(replay: Replay) -> Mapping[int, Control]:
    return next((leg.controls for leg in replay.legs if leg.controls), {})


def _by_rank(replay: Replay, ranks: Mapping[int, RankReady]) -> Table:
    controls = _controls(replay)
    rows: list[list[str]] = []
    keys: list[list[float | str | None]] = []
    for rank in sorted(ranks):
        event, control = ranks[rank], controls.get(rank)
        rate = None if control is None else control.images_per_second
        rows.append(
            [
                str(rank),
                event.ready.host,
                str(event.group),
                event.ready.device,
                "not measured" if rate is None else f"{figure(rate)} images/s",
                f"{1000 * event.clock_offset_seconds:+.1f} ms",
            ]
        )
        keys.append(
            [rank, event.ready.host, event.group, event.ready.device, rate or 0.0, event.clock_offset_seconds]
        )
    return Table(
        ("rank", "host", "group", "device", "control", "clock"),
        rows,
        (True, False, True, False, True, True),
        keys,
    )
