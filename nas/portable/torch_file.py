"""A network as a Python file that needs torch and safetensors alone: a line for each node."""

from __future__ import annotations

from collections.abc import Mapping

from nas.graph import Graph, Node
from nas.layers import Shape
from nas.layers.layer import TorchLine
from nas.portable.identifiers import identifiers
from nas.portable.preparation import Preparation
from nas.weights import Array, Weights

FILE = '''"""A network that aiperf-hpc found. This file needs torch and safetensors alone.

{told}

The weights are beside it, in the file of the same name that ends with .safetensors.
"""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
{functional}

{helpers}class Network(nn.Module):
    """{reads} (batch × {shape}) to logits (batch × {output}). A line that changes the shape says the new one,
    without the batch."""

    def __init__(self) -> None:
        super().__init__()
        {made}

    def forward(self, {reads}: Tensor) -> Tensor:
        {computed}
        return {result}


{prepare}def load(path: Path = Path(__file__).with_suffix(".safetensors")) -> Network:
    """The trained network, ready to be evaluated."""
    network = Network()
    network.load_state_dict(load_file(path))
    return network.eval()


if __name__ == "__main__":
    with torch.inference_mode():
        print(load()({example}))
'''
"""The text around the lines of a network."""


def torch_file(graph: Graph, told: Mapping[str, str], preparation: Preparation | None = None) -> str:
    """The file's text. `told` stands in its docstring, a line for each. With a `preparation` it has a
    function that makes the input of an example.

    Raises MissingReading for a layer that does not state its line. `told` may come from a stranger's run:
    `_harmless` keeps it from ending the docstring.
    """
    names = identifiers(graph)
    lines = {node.name: node.layer.torch_line(*graph.reads(node)) for node in graph.nodes}
    # Layers without parameters may be a call in `forward` alone.
    made = [f"self.{names[name]} = {line.made}" for name, line in lines.items() if line.made]
    computed = [_computed(graph, node, lines[node.name], names) for node in graph.nodes]
    helpers = list(dict.fromkeys(text for line in lines.values() for text in line.helpers))
    number = "" if graph.head.input_type == "float32" else f", dtype=torch.{graph.head.input_type}"
    prepare = preparation.python() if preparation is not None else ""
    example = f"torch.zeros(1, {', '.join(map(str, graph.input))}{number})"
    return FILE.format(
        told="\n".join(f"{name}: {_harmless(text)}" for name, text in told.items()),
        reads=names["input"],
        shape=_shown(graph.input),
        output=_shown(graph.shapes[graph.output]),
        helpers="".join(helpers),
        functional="from torch.nn import functional as F\n"
        if _uses(made, computed, helpers, [prepare])
        else "",
        made="\n        ".join(made or ["pass"]),
        computed="\n        ".join(computed),
        result=names[graph.output],
        example=example,
        prepare=prepare,
    )


def torch_state(graph: Graph, weights: Weights) -> dict[str, Array]:
    """The weights under the names by which `load_state_dict` of that file knows them. They are those of the
    file of safetensors beside it, in the shapes of the graph."""
    names = identifiers(graph)
    lines = {node.name: node.layer.torch_line(*graph.reads(node)) for node in graph.nodes}
    found = {}
    for name in (*graph.weights, *graph.statistics):
        node, tensor = name.rsplit(".", 1)
        own = names[node] if lines[node].is_parameter else f"{names[node]}.{tensor}"
        found[own] = weights[name]
    return found


def _computed(graph: Graph, node: Node, line: TorchLine, names: Mapping[str, str]) -> str:
    """The line of a node in `forward`, with the new shape as a comment if it changes."""
    own = names[node.name]
    table = names.get(graph.tables.get(node.name, ""), "")
    read = [names[name] for name in node.inputs]
    text = line.computed.format(*read, own=f"self.{own}", table=f"self.{table}")
    shape = graph.shapes[node.name]
    changed = shape != graph.shapes[node.inputs[0]]
    return f"{own} = {text}" + (f"  # {_shown(shape)}" if changed else "")


def _uses(*parts: list[str]) -> bool:
    """Whether any of these lines needs the import of `torch.nn.functional`."""
    return any("F." in text for part in parts for text in part)


def _shown(shape: Shape) -> str:
    """A shape as the file's comments write it."""
    return " × ".join(map(str, shape))


def _harmless(text: str) -> str:
    """It stands in a docstring, and may be a stranger's."""
    return "".join(c for c in text if c.isprintable() and c not in '"\\')
