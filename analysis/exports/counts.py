"""The table of operations of one architecture, as text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.table import aligned
from nas.graph import Graph, Row
from nas.ops import OPS, TENSOR_OPS, Cost, Ops
from nas.products import all_pairs

KINDS = Ops._fields
"""Kinds of operations, in the order of the journal."""
NOTES = """\
dx is the gradient of a layer's input, dw that of its weights; a training {example} is forward + backward.
grad_accum adds up the gradients of a tensor with several readers; softmax_xent is the loss.
{uncounted}"""
"""Explanations below the tables."""
ALL_PAIRS = """\
Attention is counted on the causal triangle, T(T + 1)/2 pairs of positions; "all pairs" has T², as
published MFU counts, and is for comparison with that only."""
"""Explanation of the last row of a network with attention."""


def count_text(graph: Graph, bytes_per_element: int = 4) -> str:
    """Tables for one example: each kind of layer at both prices, then each kind of operation.

    `bytes_per_element` is the width of an activation: 4 in fp32 and tf32, 2 in bf16 and fp16.
    """
    activations, pairs = graph.num_activations, all_pairs(graph)
    # Only layers that multiply and accumulate are in the second table; the others would be rows of zeros.
    tensor_rows = {name: row for name, row in graph.rows.items() if row.cost.forward.price(TENSOR_OPS)}
    tensor_table = _by_layer("tensor OPS", tensor_rows, graph, TENSOR_OPS)
    notes = NOTES.format(example=graph.head.example, uncounted=graph.head.uncounted)
    # Of a text: its attention counted as publications do, for comparison with their MFU only.
    if pairs is not None:
        tensor_table.append(["total, all pairs", "", *_priced(pairs, TENSOR_OPS)])
        notes = f"{notes}\n{ALL_PAIRS}"
    sizes = {
        "parameters": graph.num_parameters,
        "activations": activations,
        f"activation bytes, {bytes_per_element} each": activations * bytes_per_element,
    }
    parts = [
        f"Operations for one {graph.head.wording(graph.input)}, {graph.classes:,} {graph.head.answers}",
        aligned(_by_layer("OPS", graph.rows, graph, OPS)),
        aligned(tensor_table),
        aligned(_by_kind(graph)),
        aligned([[name, _number(value)] for name, value in sizes.items()]),
        notes,
    ]
    return "\n\n".join(parts) + "\n"


def count_json(graph: Graph, bytes_per_element: int = 4) -> dict[str, Any]:
    """The same figures, all of them exact integers, with `kinds` of operations for every cell."""
    example, pairs = graph.head.example, all_pairs(graph)
    rows = {name: {"number": row.num, **_passes_json(row.cost, example)} for name, row in graph.rows.items()}
    return {
        "input": list(graph.input),
        graph.head.answers: graph.classes,
        "graph_key": graph.key,
        "prices": {"ops": OPS._asdict(), "tensor_ops": TENSOR_OPS._asdict()},
        "rows": rows,
        "total": _passes_json(graph.cost, example),
        **({"total_all_pairs": _passes_json(pairs, example)} if pairs is not None else {}),
        "parameters": graph.num_parameters,
        "activations": graph.num_activations,
        "bytes_per_element": bytes_per_element,
        "activation_bytes": graph.num_activations * bytes_per_element,
    }


def _passes(cost: Cost, example: str) -> Mapping[str, Ops]:
    """The operations of each pass, in the order of the columns. What an optimizer does is not among them: it
    depends on no example."""
    return {
        "forward": cost.forward,
        "backward dx": cost.input_grad,
        "backward dw": cost.weight_grad,
        "backward": cost.backward,
        f"training {example}": cost.train,
        "evaluate": cost.evaluate,
    }


def _passes_json(cost: Cost, example: str) -> dict[str, Any]:
    """The passes with both prices and the number of each kind of operation."""
    found = {}
    for name, ops in _passes(cost, example).items():
        prices = {"ops": ops.price(OPS), "tensor_ops": ops.price(TENSOR_OPS)}
        found[name.replace(" ", "_")] = {**prices, "kinds": ops._asdict()}
    return found


def _by_layer(title: str, rows: Mapping[str, Row], graph: Graph, prices: Ops) -> list[list[str]]:
    """Rows of one price, a layer type each; the total is that of the whole graph."""
    return [
        [title, "number", *_passes(graph.cost, graph.head.example)],
        *[[name, _number(row.num), *_priced(row.cost, prices)] for name, row in rows.items()],
        ["total", "", *_priced(graph.cost, prices)],
    ]


def _by_kind(graph: Graph) -> list[list[str]]:
    """The number of each kind of operation by pass; below them its price, by which the sums can be
    checked."""
    rows = [
        [name, *map(_number, ops), _number(ops.price(OPS)), _number(ops.price(TENSOR_OPS))]
        for name, ops in _passes(graph.cost, graph.head.example).items()
    ]
    prices = [
        ["price in OPS", *map(_number, OPS), "", ""],
        ["price in tensor OPS", *map(_number, TENSOR_OPS), "", ""],
    ]
    return [["kind of operation", *KINDS, "OPS", "tensor OPS"], *rows, *prices]


def _priced(cost: Cost, prices: Ops) -> list[str]:
    """The passes at one price."""
    return [_number(ops.price(prices)) for ops in _passes(cost, "").values()]


def _number(value: int) -> str:
    """A whole number, exact to the last digit."""
    return f"{value:,}"
