"""The table of operations of one architecture, as text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from analysis.table import aligned
from nas.graph import Graph, Row
from nas.ops import OPS, TENSOR_OPS, Cost, Ops

KINDS = tuple(field.name for field in fields(Ops))
NOTES = """\
dx is the gradient of what a layer reads, dw that of its weights; a training image is forward + backward.
grad_accum adds up the gradients of a tensor with several readers; softmax_xent is the loss.
Padding taps count. Optimizer steps, augmentation and work done once a batch do not."""


def count_text(graph: Graph, bytes_per_element: int = 4) -> str:
    """Tables for one image: each kind of layer at both prices, then each kind of operation.

    `bytes_per_element` is the width of an activation: 4 in fp32 and tf32, 2 in bf16 and fp16.
    """
    image = " × ".join(map(str, graph.input))
    activations = graph.num_activations
    tensor_rows = {name: row for name, row in graph.rows.items() if row.cost.forward.price(TENSOR_OPS)}
    parts = [
        f"Operations for one image of {image}, {_number(graph.classes)} classes",
        aligned(_by_layer("OPS", graph.rows, graph.cost, OPS)),
        aligned(_by_layer("tensor OPS", tensor_rows, graph.cost, TENSOR_OPS)),
        aligned(_by_kind(graph.cost)),
        aligned(
            [
                ["parameters", _number(graph.num_parameters)],
                ["activations", _number(activations)],
                [f"activation bytes, {bytes_per_element} each", _number(activations * bytes_per_element)],
            ]
        ),
        NOTES,
    ]
    return "\n\n".join(parts) + "\n"


def count_json(graph: Graph, bytes_per_element: int = 4) -> dict[str, Any]:
    """The same figures, all of them exact integers, with `kinds` of operations for every cell."""
    return {
        "input": list(graph.input),
        "classes": graph.classes,
        "graph_key": graph.key,
        "prices": {"ops": asdict(OPS), "tensor_ops": asdict(TENSOR_OPS)},
        "rows": {name: {"number": row.num, **_passes_json(row.cost)} for name, row in graph.rows.items()},
        "total": _passes_json(graph.cost),
        "parameters": graph.num_parameters,
        "activations": graph.num_activations,
        "bytes_per_element": bytes_per_element,
        "activation_bytes": graph.num_activations * bytes_per_element,
    }


def _passes(cost: Cost) -> Mapping[str, Ops]:
    return {
        "forward": cost.forward,
        "backward dx": cost.input_grad,
        "backward dw": cost.weight_grad,
        "backward": cost.backward,
        "training image": cost.train,
        "evaluate": cost.evaluate,
    }


def _passes_json(cost: Cost) -> dict[str, Any]:
    return {
        name.replace(" ", "_"): {
            "ops": ops.price(OPS),
            "tensor_ops": ops.price(TENSOR_OPS),
            "kinds": asdict(ops),
        }
        for name, ops in _passes(cost).items()
    }


def _by_layer(title: str, rows: Mapping[str, Row], total: Cost, prices: Ops) -> list[list[str]]:
    return [
        [title, "number", *_passes(total)],
        *[[name, _number(row.num), *_priced(row.cost, prices)] for name, row in rows.items()],
        ["total", "", *_priced(total, prices)],
    ]


def _by_kind(cost: Cost) -> list[list[str]]:
    rows = [
        [name, *map(_number, ops.kinds), _number(ops.price(OPS)), _number(ops.price(TENSOR_OPS))]
        for name, ops in _passes(cost).items()
    ]
    prices = [
        ["price in OPS", *map(_number, OPS.kinds), "", ""],
        ["price in tensor OPS", *map(_number, TENSOR_OPS.kinds), "", ""],
    ]
    return [["kind of operation", *KINDS, "OPS", "tensor OPS"], *rows, *prices]


def _priced(cost: Cost, prices: Ops) -> list[str]:
    return [_number(ops.price(prices)) for ops in _passes(cost).values()]


def _number(value: int) -> str:
    return f"{value:,}"
