"""Published networks as files, counted by us, by torch's counter and by those who published them.

Each file is the network that torchvision 0.29 builds, without auxiliary classifiers.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from nas.graph import Graph
from nas.record import graph_to_json
from nas.seeds import resolve_seed

FILES = {path.stem: path for path in Path(__file__).parent.glob("*.json")}
# Parameters and 10^9 multiply-accumulates forward, as `num_params` and `_ops` of torchvision 0.29's
# IMAGENET1K_V1 weights: github.com/pytorch/vision/tree/main/torchvision/models.
TORCHVISION = {
    "alexnet": (61_100_840, 0.714),
    "densenet121": (7_978_856, 2.834),
    "googlenet": (6_624_904, 1.498),
    # Less the auxiliary classifier: two convolutions with their batch norms, and a dense layer.
    "inception_v3": (27_161_264 - (768 * 128 + 256 + 128 * 768 * 25 + 1536 + 769_000), 5.713),
    "mobilenet_v2": (3_504_872, 0.301),
    "resnext50_32x4d": (25_028_904, 4.230),
    "squeezenet1_1": (1_235_496, 0.349),
    "vgg16": (138_357_544, 15.470),
}


@cache
def network(name: str) -> Graph:
    return resolve_seed(str(FILES[name]))


def test_every_file_has_published_figures() -> None:
    assert FILES.keys() == TORCHVISION.keys()


@pytest.mark.parametrize("name", TORCHVISION)
def test_parameters_and_products_are_the_published_ones(name: str) -> None:
    graph = network(name)
    assert (graph.num_parameters, round(graph.cost.forward.mac / 1e9, 3)) == TORCHVISION[name]
    assert graph_to_json(graph) == json.loads(FILES[name].read_text(encoding="utf-8"))
