"""The control of each task on a processor: it climbs as far as the time allows, by operations."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest
import torch

from aiperf.device import Device, bind
from aiperf.measuring.control import measure_control
from aiperf.measuring.training_step import placed
from aiperf.tasks.images import IMAGES as IMAGES_TASK
from aiperf.tasks.language import LANGUAGE
from aiperf.tasks.task import ControlNetwork
from nas.graph import Graph
from nas.modules import Network
from nas.seeds import residual
from nas.text_seeds import gpt_4x128, llama_1x64


def text(size: int) -> Graph:
    return gpt_4x128((size,), 256)


TEXT = replace(
    LANGUAGE.control, sizes=(8, 16, 32), graph=text, climb=((8, 1), (8, 2), (16, 2), (32, 2)), smaller=None
)
SMALLER = replace(
    TEXT, short="small", sizes=(8,), graph=lambda size: llama_1x64((size,), 256), climb=((8, 2),)
)
IMAGES = replace(
    TEXT, sizes=(16, 32), graph=lambda size: residual((3, size, size), 10), climb=((16, 2), (32, 2))
)


@pytest.fixture(autouse=True)
def _steps_take_a_twentieth_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on whenever it is read."""
    reads = count()
    monkeypatch.setattr("aiperf.measuring.control.perf_counter", lambda: next(reads) / 20)


@pytest.mark.parametrize("control", [TEXT, IMAGES], ids=["text", "examples"])
def test_with_time_enough_it_comes_to_the_top(control: ControlNetwork) -> None:
    found = measure_control(control, bind("cpu", 0), "fp32", 3.0)
    assert (found.size, found.batch_size) == control.climb[-1]
    assert found.steps > 1
    assert found.examples_per_second == pytest.approx(2 * found.steps / found.seconds)


@pytest.mark.contract
def test_without_time_it_does_the_smallest() -> None:
    found = measure_control(TEXT, bind("cpu", 0), "fp32", 1e-6)
    assert (found.size, found.batch_size, found.steps) == (*TEXT.climb[0], 1)


@pytest.mark.parametrize(("seconds", "network", "size"), [(1e-6, "small", 8), (3.0, "", 32)])
def test_the_task_s_network_follows_the_smaller_one_in_time_enough(
    seconds: float, network: str, size: int
) -> None:
    found = measure_control(replace(TEXT, smaller=SMALLER), bind("cpu", 0), "fp32", seconds)
    assert (found.network, found.size, found.batch_size) == (network, size, 2)


def test_a_processor_without_time_for_gpt2_small_never_builds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []

    def build(graph: Graph, device: Device) -> Network:
        built.append(graph.num_parameters)
        return placed(graph, device)

    monkeypatch.setattr("aiperf.measuring.control.placed", build)
    found = measure_control(LANGUAGE.control, bind("cpu", 0), "fp32", 0.2)
    assert (found.network, found.size, found.batch_size) == ("gpt-4x128", 64, 12)
    assert built == [867_072]


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


def test_the_control_climbs_sizes_that_it_may_have_to_the_one_that_is_ranked() -> None:
    control, smaller = LANGUAGE.control, LANGUAGE.control.smaller
    assert smaller is not None
    assert [control.named(name) for name in ("", "gpt-4x128", "other")] == [control, smaller, control]
    for one in (IMAGES_TASK.control, control, smaller):
        assert {size for size, _ in one.climb} <= set(one.sizes)
    assert control.climb[-1][0] == LANGUAGE.ranked.control_size
    graphs = [control.graph(size) for size in control.sizes]
    assert {graph.num_parameters - 768 * graph.input[0] for graph in graphs} == {86_235_648 - 768 * 1024}
