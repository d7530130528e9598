"""Fused networks against the same networks run by torch alone; what computes them, and why nothing does."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from aiperf.device.cpu import Cpu
from aiperf.engines.engine import Engine
from aiperf.engines.fused import Fused, fuse
from aiperf.engines.fused.c_backend import IN_C
from aiperf.engines.fused.triton_launch import FEWEST_TILES, PROGRAMS, tiling
from aiperf.engines.registry import FusedGraphed
from nas.graph import Graph
from nas.layers import Dropout
from nas.modules import Network
from nas.morphisms import Skip, SqueezeExcite
from nas.seeds import residual, resnet50
from tests.aiperf.engines.recording import batch_of, passes_of, recording, steps_of
from tests.nas.grown import PARENTS, grown, randomised
from tests.tables import ComesTo

BATCH = 6


def network(graph: Graph, weights: Mapping[str, np.ndarray], is_fused: bool) -> Network:
    made = Network(graph)
    made.load(weights)
    made.place(torch.device("cpu"), torch.channels_last)
    if is_fused:
        fuse(made, IN_C)
    return made


def passes(made: Network, half: bool = False, kind: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Logits and all gradients as one row, of images that are the same for each network of a shape."""
    generator = torch.Generator().manual_seed(5)
    images = torch.randn(BATCH, *made.graph.input, generator=generator, dtype=torch.float64).to(kind)
    labels = torch.randint(made.graph.classes, (BATCH,), generator=generator)
    torch.manual_seed(6)  # of dropout
    made.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        logits = made(images.to(memory_format=torch.channels_last))
        loss = cross_entropy(logits, labels)
    loss.backward()
    gradients = [p.grad.flatten().double() for p in made.parameters() if p.grad is not None]
    assert len(gradients) == len(list(made.parameters()))
    return logits.detach().double(), torch.cat(gradients)


def distance(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.contract
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("parent", PARENTS)
def test_a_grown_network_computes_the_same(parent: str, seed: int) -> None:
    graph = grown(seed, 6, PARENTS[parent]())
    weights = randomised(graph, seed)
    eager, fused = network(graph, weights, False), network(graph, weights, True)
    assert list(fused.tensors()) == list(eager.tensors())
    (logits, gradients), (expected, expected_gradients) = passes(fused), passes(eager)
    assert distance(logits, expected) < 1e-4
    # A number so close to 0 that its sign is a matter of rounding passes a gradient in one and not the other.
    assert distance(gradients, expected_gradients) < 1e-2
    for name, tensor in eager.tensors().items():  # running statistics have moved
        torch.testing.assert_close(fused.tensors()[name], tensor, rtol=1e-4, atol=1e-5)
    fused.eval(), eager.eval()
    images = torch.randn(3, *graph.input).to(memory_format=torch.channels_last)
    with torch.no_grad():
        assert distance(fused(images).double(), eager(images).double()) < 1e-4


@pytest.mark.parametrize("format", ["fp32", "bf16"])
@pytest.mark.parametrize("seed", range(5))
def test_a_real_run_meets_nothing_that_the_kernels_do_not_take(seed: int, format: str) -> None:
    """The seed of the preset `digits`, after 0 to 16 morphisms. Each step raises Unfit for such images: in
    training and evaluation, by one image and by several."""
    graph = grown(seed, 4 * seed, residual())
    device = Cpu.bind(0)
    engine = Fused(passes_of(graph, device, format=format))
    for many in (5, 1):
        shown = batch_of(graph, many)
        engine.prepare(*shown)
        assert engine.step(*shown).isfinite()
        engine.answers.eval()
        with torch.inference_mode(), device.autocast(format):
            assert engine.answers(shown[0]).isfinite().all()
        engine.answers.train()


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Tensor, Any], object]], None]:
    """The kernels as if they were compiled when they are first used, which is heard of."""

    def hear(heard: Callable[[Tensor, Any], object]) -> None:
        normalise = IN_C.normalise

        def seen(self: object, images: Tensor, residual: Any, norms: Any, activation: Any) -> Any:
            heard(images, norms[0])
            return normalise(images, residual, norms, activation)

        monkeypatch.setattr(type(IN_C), "compiles", True)
        monkeypatch.setattr(type(IN_C), "normalise", seen)

    return hear


@pytest.mark.parametrize("kind", [Fused, FusedGraphed])
def test_kernels_of_steps_and_of_validations_are_compiled_before_the_first_step(
    kind: type[Engine], compiling: Callable[..., None]
) -> None:
    """Those of steps for a whole batch, on whose size it may depend what is compiled."""
    launched = set[tuple[bool, int]]()
    compiling(lambda images, module: launched.add((module.training, len(images))))
    engine = kind(passes_of(residual()))
    engine.prepare(*batch_of(residual(), 4))
    assert launched == {(True, 4), (False, 2)}
    assert all(module.training for module in engine.answers.modules())


def test_a_network_trains_on_where_the_kernels_of_validations_cannot_be_compiled(
    compiling: Callable[..., None],
) -> None:
    compiling(lambda images, module: module.training or 1 / 0)
    passes = passes_of(residual())
    with pytest.raises(ZeroDivisionError):
        Fused(passes).prepare(*batch_of(residual(), 4))
    assert all(module.training for module in passes.network.modules())


@pytest.mark.parametrize("half", [False, True])
def test_it_is_as_close_to_fp64_as_torch(half: bool) -> None:
    """In bf16 the two differ from each other as much as each does from fp64, so their errors against fp64 are
    compared, as means over ten grown networks."""
    errors: dict[bool, list[Tensor]] = {False: [], True: []}
    for seed in range(10):
        graph = grown(seed, 6)
        assert not any(isinstance(node.layer, Dropout) for node in graph.nodes)
        weights = randomised(graph, seed)
        true = passes(network(graph, weights, False).double(), kind=torch.float64)
        for is_fused, into in errors.items():
            found = passes(network(graph, weights, is_fused), half)
            into.append(torch.tensor([distance(*pair) for pair in zip(found, true)]))
    eager, fused = (torch.stack(into).log().mean(dim=0).exp() for into in errors.values())
    assert (eager > 0).all()
    assert (fused < 1.25 * eager).all(), (fused, eager)


def fusible() -> Graph:
    """A network with all that is fused."""
    graph = residual((1, 8, 8), 5, (4, 8))
    graph = SqueezeExcite.propose(graph, random.Random(0)).apply(graph)
    return Skip.propose(graph, random.Random(3)).apply(graph)


FUSED_RESNET50 = "17 Conv2d, 49 Normalise, 1 MaxPool2d, 33 Pointwise, 3 Pixels, 3 OfPixels, 1 Mean, 1 Linear"
FUSED_ALL = "6 Conv2d, 6 Normalise, 2 Mean, 3 Linear, 1 ReLU, 1 Gated, 1 Pixels, 1 OfPixels"


@pytest.mark.parametrize(
    ("graph", "steps"), [(resnet50((3, 32, 32), 10), FUSED_RESNET50), (fusible(), FUSED_ALL)]
)
def test_all_of_a_network_between_its_convolutions_is_fused(graph: Graph, steps: str) -> None:
    made = Network(graph)
    fuse(made, IN_C)
    assert steps_of(made) == steps


class Accelerator:
    """Stands for a device that is not here, which can capture."""

    why_not_captured = ""

    def __init__(self, kind: str, formats: tuple[str, ...] = ("bf16", "fp32")) -> None:
        self.kind, self.formats, self.name = kind, formats, f"some {kind}"


def test_where_fused_steps_can_be_made(
    monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    def why_not(device: Any, version: str) -> str:
        """By this version of Triton, or without it."""
        triton: Any = ModuleType("triton")
        triton.__version__ = version
        monkeypatch.setitem(sys.modules, "triton", triton if version else None)
        assert FusedGraphed.why_not(device) == Fused.why_not(device)
        return Fused.why_not(device)

    names = {"why_not": why_not, "Accelerator": Accelerator, "recording": recording}
    comes_to_what_was_read("fused_devices.txt", names)


@pytest.mark.parametrize("channels", [1, 3, 24, 64, 96, 131, 160, 2048, 2051])
@pytest.mark.parametrize("rows", [1, 98, 3211264, 2**31])
def test_all_of_the_images_is_divided_among_programs(rows: int, channels: int) -> None:
    tiles = tiling(rows, channels, PROGRAMS, FEWEST_TILES)
    height, width = tiles.tile
    assert tiles.channels == channels
    assert tiles.chunk % height == 0
    assert (tiles.chunks - 1) * tiles.chunk < rows <= tiles.chunks * tiles.chunk
    assert height * width == 2048
    assert tiles.programs <= PROGRAMS or tiles.chunks == 1
    assert -(-channels // width) * width < 2 * channels
