"""What the hosts measured, one line per quantity.

Of many hosts the median and the extremes are drawn, not each host: a single host that is hot, slow or busy
shows as an edge of the band, and its name is in the section on devices. Values are in SI units, as recorded.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from aiperf.wording import counted, scaled
from analysis.pages.figures.picture import (
    COLOURS,
    Drawing,
    Frame,
    Key,
    Picture,
    canvas,
    clock_axis,
    round_text,
)
from analysis.readings.telemetry import Quantity, Telemetry
from analysis.table import Cell, Table

UNITS: Mapping[str, str] = {
    "_bytes_per_second": "B/s",
    "_bytes": "B",
    "_watts": "W",
    "_joules": "J",
    "_celsius": "°C",
    "_hertz": "Hz",
    "_seconds": "s",
    ".utilisation": "0 to 1",
    ".stolen": "0 to 1",
}
"""Units by the end of a sensor's name; those of shares are their ranges."""


def telemetry(found: Telemetry) -> Picture:
    """The median of the hosts, and the band from the lowest to the highest. What was zero on all of them all
    the time has no panel. Each quantity has a panel; the panels share the axis of time."""
    zero = [quantity for quantity in found.quantities if _is_zero(quantity)]
    shown = [quantity for quantity in found.quantities if not _is_zero(quantity)]
    middle = (found.edges[1:] + found.edges[:-1]) / 2

    def draw(frame: Frame) -> Drawing:
        figure, axes = canvas(frame, 40 + 86 * len(shown), rows=len(shown))
        for one, quantity in zip(axes, shown):
            one.fill_between(
                middle, quantity.lowest, quantity.highest, color=COLOURS["sky"], alpha=0.45, lw=0
            )
            shape = "o-" if len(middle) == 1 else "-"  # no line goes through one point
            one.plot(middle, quantity.median, shape, color=COLOURS["blue"], lw=1.3, ms=4)
            one.set_title(
                _name(quantity), loc="left", fontsize=frame.font_size, color=COLOURS["soft"], pad=3, y=1.0
            )
            # From 0, so that a quantity that hardly changes looks so.
            one.set_ylim(0, 1.15 * float(np.nanmax(quantity.highest, initial=0.0)) or 1.0)
            one.yaxis.set_major_locator(MaxNLocator(3))
            one.yaxis.set_major_formatter(FuncFormatter(lambda value, _: round_text(value, "").strip()))
        clock_axis(axes[-1], float(found.edges[-1]), frame)
        return Drawing(figure)

    cells: list[list[Cell]] = [
        [_name(one), _mean(one.lowest), _mean(one.median), _mean(one.highest)] for one in found.quantities
    ]
    columns = ("quantity", "mean of the lowest host", "median", "mean of the highest host")
    left_out = f" Always zero: {'; '.join(map(_name, zero))}." if zero else ""
    unread = f" {found.unread:,} lines could not be read." if found.unread else ""
    return Picture(
        name="telemetry",
        title="What the hosts measured",
        says=f"Sampled once per second on {counted(found.hosts, 'host')}.{left_out}{unread}",
        draw=draw,
        table=Table.of(columns, cells, (False, True, True, True)),
        empty=not shown,
        legend=(Key("blue", "median of the hosts", "line"), Key("sky", "lowest to highest")),
    )


def _name(quantity: Quantity) -> str:
    """The name of a quantity in words, with its unit: node.power_watts becomes "node, power [W]"."""
    ending = next((ending for ending in UNITS if quantity.name.endswith(ending)), "")
    unit = f" [{UNITS[ending]}]" if ending else ""
    named = quantity.name.removesuffix(ending) if ending.startswith("_") else quantity.name
    return named.replace("_", " ").replace(".", ", ") + unit


def _is_zero(quantity: Quantity) -> bool:
    """Whether all measured values are 0; a quantity without values is not zero. NaN stands for a bin without
    values."""
    known = quantity.highest[np.isfinite(quantity.highest)]
    return len(known) > 0 and not known.any()


def _mean(values: NDArray[np.float64]) -> Cell:
    """The mean over the span as text and as a key to sort by; unknown if nothing was measured."""
    if not np.isfinite(values).any():
        return "unknown"
    mean = float(np.nanmean(values))
    return scaled(mean, "", 4).strip(), mean
