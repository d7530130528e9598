"""A layer in a file of somebody else's: counted, trained, grown and recorded without a change to ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nas.layers import Conv2d, GlobalPool, ReLU
from nas.record import graph_to_json
from tests.nas.graphs import chain
from tests.nas.search.test_installed_searches import write_distribution

OWN = """
from dataclasses import dataclass
from math import prod
import torch
from nas.layers import Layer
from nas.modules import module_of
from nas.layers.layer import Constant
from nas.ops import Cost, Ops

@dataclass(frozen=True)
class Scale(Layer):
    scale: float
    def shape(self, *inputs): return inputs[0]
    def weights(self, *inputs): return {"factor": inputs[0][:1]}
    def costs(self, *inputs):
        product = Ops(mul=prod(inputs[0]))
        return {"scale": Cost(product, product, product, product)}
    def start(self, tensor, *inputs): return Constant(self.scale)

class Product(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.empty(channels))
    def forward(self, images): return images * self.factor[:, None, None]

@module_of.register
def _(layer: Scale, *inputs): return Product(inputs[0][0])
"""

USER = """
import json, sys
import torch
from nas.modules import Network
from nas.morphisms import Widen
from nas.record import graph_from_json, graph_to_json
from nas.weights import initial

def logits(graph, weights):
    network = Network(graph).double()
    network.load(weights)
    return network(torch.ones(2, *graph.input, dtype=torch.float64))

parent = graph_from_json(sys.argv[1])
assert graph_from_json(graph_to_json(parent)) == parent
weights, wider = initial(parent, 0), Widen("Conv2d.0", 8, 0)
child, carried = wider.apply(parent), wider.carry(parent, weights)
same = torch.allclose(logits(parent, weights), logits(child, carried), rtol=1e-12)
logits(child, carried).sum().backward()
print(json.dumps([same, child.rows["scale"].cost.train.mul, carried["ReLU.1.factor"].tolist()]))
"""


@pytest.mark.torch
def test_it_is_known_by_its_entry_point(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    write_distribution(tmp_path, "own", "1", "[nas.layers]\nown = own")
    record = graph_to_json(chain(Conv2d(4), ReLU(), Conv2d(2), GlobalPool(), input=(1, 5, 5)))
    record["nodes"][1]["layer"] = {"type": "Scale", "scale": 0.5}
    found = subprocess.run(
        [sys.executable, "-c", USER, json.dumps(record)],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"},
        stdout=subprocess.PIPE,
        check=True,
        timeout=100,
    )
    assert json.loads(found.stdout) == [True, 3 * 8 * 25, [0.5] * 8]
