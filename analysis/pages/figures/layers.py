"""Operations by kind of layer: of the best network, and of all credited work of the run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from aiperf.wording import percent, scaled
from analysis.pages.figures.picture import Drawing, Key, Marks, Picture, marks_of
from analysis.pages.figures.style import COLOURS, Frame, canvas
from analysis.table import Table
from nas.graph import Graph
from nas.ops import OPS, TENSOR_OPS

LEAST_SHARE = 0.001
"""Least share of a kind that is drawn; the table has all kinds."""


def operations_by_layer(best: Graph, run: Mapping[str, int] | None) -> Picture:
    """`run`: credited operations by kind of layer, None where they are not known."""
    network = {name: row.cost.train.price(OPS) for name, row in best.rows.items()}
    tensor = {name: row.cost.train.price(TENSOR_OPS) for name, row in best.rows.items()}
    shares = {"the best network": _shares(network)}
    if run:
        shares["the run"] = _shares(run)
    names = sorted(
        network.keys() | (run or {}).keys(), key=lambda name: -max(s.get(name, 0) for s in shares.values())
    )
    drawn = [name for name in names if max(s.get(name, 0) for s in shares.values()) >= LEAST_SHARE]
    colours = dict(zip(shares, ("blue", "sky")))

    def draw(frame: Frame) -> Drawing:
        figure, (axes,) = canvas(frame, 30 + 15 * len(shares) * len(drawn) + 8 * len(drawn))
        axes.grid(visible=False)
        axes.spines["bottom"].set_visible(False)
        axes.set_xticks([])
        height = 0.8 / len(shares)
        lefts, heights = [], []
        for place, (name, values) in enumerate(shares.items()):
            at = np.arange(len(drawn)) + (place - (len(shares) - 1) / 2) * height
            widths = np.array([values.get(kind, 0.0) for kind in drawn])
            axes.barh(at, widths, height=0.92 * height, color=COLOURS[colours[name]], lw=0)
            for y, width in zip(at, widths):
                axes.text(
                    width + 0.008,
                    y,
                    percent(width, 1),
                    va="center",
                    fontsize=frame.font_size - 1,
                    color=COLOURS["soft"],
                )
            lefts += widths.tolist()
            heights += at.tolist()
        axes.set_yticks(range(len(drawn)), drawn)
        axes.set_ylim(len(drawn) - 0.5, -0.5)
        axes.set_xlim(0, 1.12 * max([*lefts, 1e-9]))
        zero = np.zeros(len(lefts))
        return Drawing(
            figure,
            lambda: Marks(marks_of(axes, zero, np.array(lefts), np.array(heights)), range(len(lefts))),
        )

    labels = [
        f"{kind}, {name}\n{percent(values.get(kind, 0.0), 2)}"
        for name, values in shares.items()
        for kind in drawn
    ]
    rows = [
        [
            kind,
            f"{network.get(kind, 0):,}",
            percent(shares["the best network"].get(kind, 0.0)),
            f"{tensor.get(kind, 0):,}",
            percent(shares["the run"].get(kind, 0.0)) if run else "unknown",
        ]
        for kind in names
    ]
    keys = [
        [
            None,
            network.get(kind, 0),
            shares["the best network"].get(kind, 0.0),
            tensor.get(kind, 0),
            shares["the run"].get(kind, 0.0) if run else None,
        ]
        for kind in names
    ]
    first = drawn[0] if drawn else "nothing"
    says = (
        f"One training {best.head.example} of the best network costs {scaled(sum(network.values()), 'OP')}; "
        f"{percent(shares['the best network'].get(first, 0.0), 1)} of them in {first} layers."
    )
    if not run:
        says += " The shares of the run are shown after `aiperf-hpc validate`."
    return Picture(
        name="layers",
        title="Operations by kind of layer",
        says=says,
        draw=draw,
        table=Table(
            (
                *("layer", f"operations per training {best.head.example}", "share", "tensor operations"),
                "share in the run",
            ),
            rows,
            (False, True, True, True, True),
            keys,
        ),
        legend=[Key(colours[name], name) for name in shares],
        labels=labels,
    )


def _shares(operations: Mapping[str, int]) -> dict[str, float]:
    total = sum(operations.values())
    return {name: value / total for name, value in operations.items()} if total else {}
