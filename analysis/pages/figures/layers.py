"""Operations by kind of layer: of the best network, and of all credited work of the run.

A difference between the two says that the search moved: the best network has another mix than the average
one. Operations are counted by nas/layers; tensor operations are the part that data sheets of accelerators
state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from aiperf.wording import percent, scaled
from analysis.pages.figures.bars import bars
from analysis.pages.figures.picture import Key, Picture
from analysis.table import Cell, Table
from nas.graph import Graph
from nas.ops import OPS, TENSOR_OPS

NETWORK, RUN = "the best network", "the run"
"""Names of the two series, as legend and tooltips show them."""
COLOUR_OF = {NETWORK: "blue", RUN: "sky"}
"""Colours of the two series, in the order of the bars."""
LEAST_SHARE = 0.001
"""Least share of a kind that is drawn: a bar of a thousandth of the width is not seen. The table has all
kinds."""


def operations_by_layer(best: Graph, run: Mapping[str, int] | None) -> Picture:
    """`run`: credited operations by kind of layer, None where they are not known: a journal has totals only,
    and the layers come with a recount of every architecture. Shares are of all operations of one training
    example, forward and backward."""
    network = {kind: row.cost.train.price(OPS) for kind, row in best.rows.items()}
    tensor = {kind: row.cost.train.price(TENSOR_OPS) for kind, row in best.rows.items()}
    shares = {NETWORK: _shares(network)} | ({RUN: _shares(run)} if run else {})

    def largest(kind: str) -> float:
        return max(each.get(kind, 0.0) for each in shares.values())

    kinds = sorted(network.keys() | (run or {}).keys(), key=lambda kind: -largest(kind))
    drawn = [kind for kind in kinds if largest(kind) >= LEAST_SHARE]
    cells: list[list[Cell]] = []
    for kind in kinds:
        operations, in_tensor = ((f"{num:,}", num) for num in (network.get(kind, 0), tensor.get(kind, 0)))
        parts = (shares[name].get(kind, 0.0) if name in shares else None for name in COLOUR_OF)
        in_network, in_run = ((percent(share), share) for share in parts)
        cells.append([kind, operations, in_network, in_tensor, in_run])
    example, first = best.head.example, drawn[0] if drawn else "nothing"
    says = (
        f"One training {example} of the best network costs {scaled(sum(network.values()), 'OP')}; "
        f"{percent(shares[NETWORK].get(first, 0.0), 1)} of them in {first} layers."
    )
    if not run:
        says += " The shares of the run are shown after `aiperf-hpc validate`."
    columns = (
        "layer",
        f"operations per training {example}",
        "share",
        "tensor operations",
        "share in the run",
    )
    picture = bars(
        "layers",
        "Operations by kind of layer",
        says,
        drawn,
        {name: (COLOUR_OF[name], [each.get(kind, 0.0) for kind in drawn]) for name, each in shares.items()},
        lambda share: percent(share, 1),
        Table.of(columns, cells, (False, *[True] * 4)),
        room=1.12,
        gap=0.008,
        hovered=percent,
    )
    return replace(picture, legend=[Key(COLOUR_OF[name], name) for name in shares])


def _shares(operations: Mapping[str, int]) -> dict[str, float]:
    """The share of each kind in all operations; empty if there are none."""
    total = sum(operations.values())
    return {name: value / total for name, value in operations.items()} if total else {}
