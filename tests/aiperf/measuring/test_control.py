"""The control of each task on a processor: it climbs as far as the time allows, by operations."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

import pytest
import torch

from aiperf.device import bind
from aiperf.measuring.control import measure_control
from aiperf.measuring.training_step import placed
from aiperf.tasks.language import LANGUAGE
from aiperf.tasks.task import ControlNetwork
from nas.graph import Graph
from nas.seeds import residual
from nas.text_seeds import gpt_4x128


def text(size: int) -> Graph:
    return gpt_4x128((size,), 256)


TEXT = replace(LANGUAGE.control, sizes=(8, 16, 32), graph=text, climb=((8, 1), (8, 2), (16, 2), (32, 2)))
IMAGES = replace(
    TEXT, sizes=(16, 32), graph=lambda size: residual((3, size, size), 10), climb=((16, 2), (32, 2))
)


@pytest.mark.parametrize("control", [TEXT, IMAGES], ids=["text", "examples"])
def test_with_time_enough_it_comes_to_the_top(control: ControlNetwork) -> None:
    began = perf_counter()
    found = measure_control(control, bind("cpu", 0), "fp32", 3.0)
    assert (found.size, found.batch_size) == control.climb[-1]
    assert found.steps > 1
    assert found.examples_per_second == pytest.approx(2 * found.steps / found.seconds)
    assert perf_counter() - began < 30


def test_without_time_it_does_the_smallest() -> None:
    found = measure_control(TEXT, bind("cpu", 0), "fp32", 1e-6)
    assert (found.size, found.batch_size, found.steps) == (*TEXT.climb[0], 1)


def test_one_network_with_learned_positions_does_for_shorter_texts() -> None:
    device = bind("cpu", 0)
    network = placed(text(32), device)
    shorter = placed(text(8), device)
    shorter.load(
        {
            name: tensor.detach().numpy()[: 8 if name.startswith("positions") else None]
            for name, tensor in network.tensors().items()
        }
    )
    symbols = torch.randint(256, (2, 8), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(network(symbols), shorter(symbols))


def test_the_controls_sizes_are_those_that_it_climbs() -> None:
    assert tuple(dict.fromkeys(size for size, _ in LANGUAGE.control.climb)) == LANGUAGE.control.sizes
    graphs = [LANGUAGE.control.graph(size) for size in LANGUAGE.control.sizes]
    assert {graph.num_parameters - 768 * graph.input[0] for graph in graphs} == {86_235_648 - 768 * 1024}
