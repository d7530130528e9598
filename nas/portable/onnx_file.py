"""A network as an ONNX file, its weights inside. ONNX's operators for each layer are in `nas.layers`; the
library onnx is imported only when a file is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nas.graph import Graph
from nas.layers.layer import OPERATOR_SET, LayerPlace, Written
from nas.portable.identifiers import PortableError, identifiers
from nas.weights import Weights

FORM = 8
"""Version of the file's form (IR): the one that came with operator set 17, in ONNX 1.12."""
LARGEST_BYTES = (1 << 31) - (1 << 24)
"""The most that the tensors in one file may have: protocol buffers end at 2 GiB, and the operators need a
little."""


def operators(graph: Graph, weights: Weights) -> Written:
    """The network in operators of ONNX. Raises MissingReading for a layer that does not state its own.
    Operators are in the order of the graph, and tensors are named by Python names of nodes
    (`identifiers`)."""
    draft, names = Written(), identifiers(graph)
    for node in graph.nodes:
        reads = graph.reads(node)
        tensors = (*node.layer.weights(*reads), *node.layer.statistics(*reads))
        own = {tensor: weights[f"{node.name}.{tensor}"] for tensor in tensors}
        table = f"{names[graph.tables[node.name]]}.weight" if node.name in graph.tables else ""
        place = LayerPlace(draft, names[node.name], own, reads, table)
        node.layer.onnx(place, *[names[name] for name in node.inputs])
    return draft


def onnx_file(graph: Graph, weights: Weights, told: Mapping[str, str]) -> bytes:
    """The file. It reads `images` (batch, channels, height, width) of fp32 or `symbols` (batch, positions) of
    int64, and puts out `logits`. `told` becomes its metadata.

    Raises MissingReading for a layer that does not state its operators, PortableError for more weights than
    a file has room for, ModuleNotFoundError without the library onnx.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    draft, names = operators(graph, weights), identifiers(graph)
    if (size := sum(array.nbytes for array in draft.tensors.values())) > LARGEST_BYTES:
        raise PortableError(f"its weights have {size:,} bytes, and an ONNX file holds {LARGEST_BYTES:,}")
    output = names[graph.output]
    nodes = [
        helper.make_node(
            each.kind,
            each.inputs,
            # The output of the file has one name, whatever the last node is called.
            ["logits" if name == output else name for name in each.outputs],
            name=each.outputs[0],
            **each.attributes,
        )
        for each in draft.operators
    ]
    number = helper.np_dtype_to_tensor_dtype(np.dtype(graph.head.input_type))
    logits = graph.shapes[graph.output]
    written: Any = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info(names["input"], number, ["batch", *graph.input])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", *logits])],
        [numpy_helper.from_array(array, name) for name, array in draft.tensors.items()],
    )
    whole = helper.make_model(
        written,
        producer_name="aiperf-hpc",
        ir_version=FORM,
        opset_imports=[helper.make_opsetid("", OPERATOR_SET)],
    )
    helper.set_model_props(whole, dict(told))
    # With the inference of shapes: an operator whose shapes do not fit is found here, not by the user's
    # runtime.
    onnx.checker.check_model(whole, full_check=True)
    return bytes(whole.SerializeToString())
