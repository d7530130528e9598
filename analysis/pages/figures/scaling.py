"""OPS and efficiency over the number of devices.

With logarithmic axes of one scale, ideal weak scaling is a straight line, from which a loss at any size is
seen as well as at another. Efficiencies are on a linear axis from 0, so that a small loss looks small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from aiperf.rules.ending import Answer
from aiperf.wording import counted, percent, plain, rate
from analysis.comparing.published import Published
from analysis.comparing.scaling import Scaling, ScalingPoint
from analysis.pages.figures.picture import (
    COLOURS,
    LEAST_TICKS,
    Drawing,
    Frame,
    Key,
    Picture,
    canvas,
    pointed,
    round_text,
    round_ticks,
    stamped,
)

ABOVE_ONE = 1.005
"""An efficiency above this share is more than rounding above 100 %, so the text says what it means."""


def weak_scaling(found: Scaling, others: Sequence[Published] = ()) -> Picture:
    """Log-log OPS with the ideal line; the efficiency below. `others`: drawn as points of their own, since
    the rules under which they were counted are others, and without an efficiency."""
    devices = np.array([point.devices for point in found.points], dtype=np.float64)
    rates = np.array([point.ops_per_second for point in found.points])
    efficiencies = np.array([point.efficiency for point in found.points])
    other_devices = [float(other.devices) for other in others]
    other_rates = [other.ops_per_second for other in others]
    ends = [*devices, *other_devices]
    coupled = [
        (point.devices, share)
        for point in found.points
        if (share := point.figures["coupled_share"].value) is not None
    ]

    def draw(frame: Frame) -> Drawing:
        figure, (upper, lower) = canvas(
            frame, 360 if frame.narrow else 520, rows=2, gridspec_kw={"height_ratios": [2.4, 1]}
        )
        ticks = _ticks(ends, 5 if frame.narrow else 10)
        ideal = np.array([min(*ticks, *ends) / 1.15, max(*ticks, *ends) * 1.15])
        upper.plot(
            ideal,
            found.base_ops_per_second / found.base_devices * ideal,
            color=COLOURS["soft"],
            lw=1.0,
            dashes=(5, 3),
        )
        for point in found.points:
            if point.interval is not None:
                upper.plot([point.devices] * 2, point.interval, color=COLOURS["blue"], lw=1.4)
        upper.plot(devices, rates, "o-", color=COLOURS["blue"], lw=1.4, ms=6, mec=COLOURS["paper"])
        upper.plot(
            other_devices, other_rates, "D", color=COLOURS["amber"], ms=6, mec=COLOURS["paper"], ls="none"
        )
        # The lower axes share this one, so one scale serves both.
        upper.set_xscale("log")
        upper.set_yscale("log")
        round_ticks(upper.yaxis, 5 if frame.narrow else 8)
        upper.yaxis.set_major_formatter(FuncFormatter(lambda value, _: round_text(value, "OPS")))
        upper.set_ylabel("sustained OPS")
        lower.axhline(1.0, color=COLOURS["soft"], lw=1.0, dashes=(5, 3))
        lower.plot(devices, efficiencies, "o-", color=COLOURS["blue"], lw=1.4, ms=6, mec=COLOURS["paper"])
        lower.plot(
            *(zip(*coupled) if coupled else ([], [])),
            "s:",
            color=COLOURS["green"],
            lw=1.2,
            ms=5,
            mec=COLOURS["paper"],
        )
        highest = max([efficiencies.max(), *(share for _, share in coupled)])
        lower.set_ylim(0, max(1.1, 1.08 * highest))
        lower.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10], min_n_ticks=LEAST_TICKS))
        lower.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
        lower.set_ylabel("efficiency")
        # At the sizes that were run, which are rarely powers of ten.
        lower.xaxis.set_major_locator(FixedLocator(ticks))
        lower.xaxis.set_minor_locator(NullLocator())
        lower.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        lower.set_xlabel("devices")
        lower.set_xlim(*ideal)
        return pointed(figure, upper, ends, [*rates, *other_rates])

    legend = [
        Key("blue", f"{found.origin.value}, with the 95 % interval", "points"),
        Key("soft", "ideal, from the smallest run: 100 % efficiency", "dashed"),
    ]
    if coupled:
        legend.append(Key("green", "coupled: the control over all devices, of uncoupled", "points"))
    if others:
        legend.append(Key("amber", "published by others under AIPerf 1.0 rules", "diamond"))
    labels = [
        f"{point.devices:,} devices, {plain(point.run)}\n{rate(point.ops_per_second)}\n"
        f"efficiency {percent(point.efficiency, 1)}{_coupled_text(point)}"
        for point in found.points
    ]
    labels += [
        f"{other.system}\n{rate(other.ops_per_second)}\npublished under AIPerf 1.0 rules" for other in others
    ]
    picture = Picture(
        name="scaling",
        title=found.subject.capitalize(),
        says=_says(found),
        draw=draw,
        legend=legend,
        labels=labels,
    )
    return stamped(picture, found.mark)


def _coupled_text(point: ScalingPoint) -> str:
    """The coupled share for a tooltip, on a line of its own; empty if it was not measured."""
    known = point.figures["coupled_share"]
    return "" if known.value is None else f"\ncoupled {known.text}"


def _says(found: Scaling) -> str:
    """The rates and the efficiency of the largest run, relative to the smallest one, and which runs must not
    be believed."""
    last = found.points[-1]
    warning = ""
    for answer in (Answer.INVALID.value, Answer.INCOMPLETE.value):
        if runs := [plain(point.run) for point in found.points if point.verdict.startswith(answer)]:
            warning += f" Not to be believed, for {answer}: {', '.join(runs)}."
    efficiency = f"{'' if found.mark else 'weak scaling '}efficiency {percent(last.efficiency, 1)}"
    return (
        f"From {found.base_devices:,} to {last.devices:,} devices: {rate(found.base_ops_per_second)} to "
        f"{rate(last.ops_per_second)}, {efficiency} relative to "
        f"{counted(found.base_devices, 'device')}. At {last.devices:,} devices the groups trained "
        f"{percent(last.training_share, 1)} of their time, with validations "
        f"{percent(last.busy_share, 1)}.{_coupled_says(last)}{_above_one(found)}{warning}"
    )


def _coupled_says(last: ScalingPoint) -> str:
    """How fast the devices of the largest run trained one network together."""
    known = last.figures["coupled_share"]
    if known.value is None:
        return ""
    return f" The control over all of them, before the span, had {known.text}."


def _above_one(found: Scaling) -> str:
    """What an efficiency above 100 % means; empty if there is none."""
    above = [
        point for point in found.points if point.efficiency > ABOVE_ONE and point.devices > found.base_devices
    ]
    if not above:
        return ""
    return (
        f" An efficiency above 100 % ({', '.join(plain(point.run) for point in above)}) means that the "
        "smallest run had less per device, by chance or because it was disturbed: repeat that size."
    )


def _ticks(ends: Sequence[float], most: int) -> list[float]:
    """The sizes that were run; of many, those that are far enough apart; of fewer than three, with doublings
    between or above them. `most` is the largest number of them."""
    sizes = sorted(set(ends))
    while len(sizes) < LEAST_TICKS:
        between = sizes[0] * 2.0 ** round(math.log2(sizes[-1] / sizes[0]) / 2)
        sizes = sorted({*sizes, between if between not in sizes else 2 * sizes[-1]})
    while len(sizes) > most:
        sizes = sizes[::2] if len(sizes) % 2 else [*sizes[:-1:2], sizes[-1]]
    return sizes
