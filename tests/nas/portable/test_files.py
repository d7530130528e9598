"""A network as ONNX and as a Python file: others answer what our own modules answer."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
import pytest
import torch
from hypothesis import given, settings
from safetensors.numpy import save_file

from nas.graph import Graph, Node
from nas.head import NextSymbol
from nas.layers import (
    AdaptiveAveragePool,
    AveragePool,
    Conv2d,
    Dense,
    Embedding,
    Experts,
    Flatten,
    GlobalPool,
    Layer,
    Linear,
    MaxPool,
    ReLU,
    ReLU6,
    Shape,
)
from nas.portable.identifiers import TAKEN, identifiers
from nas.portable.onnx_file import onnx_file
from nas.portable.preparation import ImagePreparation
from nas.portable.torch_file import torch_file, torch_state
from nas.seeds import residual
from nas.text_seeds import TEXT_SEEDS
from nas.weights import Array
from tests.nas.graphs import IMAGE, SAMPLES, TEXT_SAMPLES, Draft, chain, graphs, grouped, texts
from tests.nas.grown import standard
from tests.nas.networks import examples, network, random_weights


def session(graph: Graph) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    content = onnx_file(graph, random_weights(graph), {"trial": "3"})
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def written(graph: Graph, folder: Path) -> Path:
    path = folder / "network.py"
    path.write_text(torch_file(graph, {"network": "trial 3"}), encoding="utf-8")
    save_file(torch_state(graph, random_weights(graph)), path.with_suffix(".safetensors"))
    return path


def loaded(path: Path) -> Any:
    return runpy.run_path(str(path))["load"]()


def by_onnx(graph: Graph, folder: Path) -> Array:
    name = "symbols" if isinstance(graph.head, NextSymbol) else "images"
    (logits,) = session(graph).run(["logits"], {name: examples(graph).numpy()})
    return logits  # type: ignore[no-any-return]


@torch.inference_mode()
def by_torch(graph: Graph, folder: Path) -> Array:
    return loaded(written(graph, folder)).double()(examples(graph, kind=torch.float64)).numpy()  # type: ignore[no-any-return]


@torch.inference_mode()
def answers(graph: Graph) -> Array:
    return network(graph, torch.float64).eval()(examples(graph, kind=torch.float64)).numpy()  # type: ignore[no-any-return]


every_form = pytest.mark.parametrize(("by", "noise"), [(by_onnx, 1e-4), (by_torch, 1e-9)])
By = Callable[[Graph, Path], Array]


def compare(by: By, noise: float, graph: Graph, folder: Path) -> None:
    found, right = by(graph, folder), answers(graph)
    assert found.shape == right.shape
    np.testing.assert_allclose(found, right, rtol=noise, atol=noise * max(1.0, np.abs(right).max()))


@every_form
@settings(max_examples=25, deadline=None)
@given(graph=graphs() | texts())
def test_any_network(tmp_path_factory: pytest.TempPathFactory, by: By, noise: float, graph: Graph) -> None:
    compare(by, noise, graph, tmp_path_factory.mktemp("network"))


def around(layer: Layer, reads: tuple[Shape, ...], is_text: bool) -> Graph:
    """A network with this layer: others make what it reads, and answers of what it puts out."""
    draft, inputs = Draft(), list[str]()
    if is_text and len(reads[0]) > 1:
        draft.put("embedding", Embedding(7, 12))
    for number, shape in enumerate(reads):
        if is_text and len(shape) > 1:
            inputs.append(draft.put(f"read{number}", Linear(shape[1]), "embedding"))
        elif is_text or shape == IMAGE:
            inputs.append("input")
        elif len(shape) == 3:
            inputs.append(draft.put(f"read{number}", Conv2d(shape[0]), "input"))
        else:
            draft.put(f"pool{number}", GlobalPool(), "input")
            inputs.append(draft.put(f"read{number}", Dense(shape[0])))
    draft.put("sample", layer, *inputs)
    if is_text:
        draft.put("symbols", Linear(7))
        return draft.graph(*reads[0][:1], head=NextSymbol())
    if len(layer.shape(*reads)) == 3:
        draft.put("flat", Flatten())
    draft.put("classifier", Dense(3))
    return draft.graph(*IMAGE)


@every_form
@pytest.mark.parametrize("name", [*SAMPLES, *TEXT_SAMPLES])
def test_every_layer(tmp_path: Path, by: By, noise: float, name: str) -> None:
    sample = SAMPLES.get(name) or TEXT_SAMPLES[name]
    compare(by, noise, around(*sample, is_text=name in TEXT_SAMPLES), tmp_path)


# Shapes of which oneDNN's own gradients are wrong: `nas.layers.convolutions.Executed`.
WIDE_STRIDES = chain(
    *(
        Conv2d(4, 1, 2),
        Conv2d(6, (3, 1), 9),
        Conv2d(6, 3, 5, padding=2),
        MaxPool(1, 2),
        GlobalPool(),
        Dense(3),
    ),
    input=(3, 9, 9),
)


@every_form
@pytest.mark.parametrize(
    "graph",
    [
        grouped(5, 12),
        *(TEXT_SEEDS[name]((16,)) for name in ("gpt-4x128", "llama-4x128")),
        standard("gated", tied=True),
        WIDE_STRIDES,
        # The last window may end beyond the padding. Its mean is over what lies before that end: torch
        # divides by fewer taps there.
        *(
            chain(Conv2d(2), ReLU6(), pool, Flatten(), Dense(3), input=(1, 6, 7))
            for pool in (
                AveragePool(3, 2, padding=1, ceil_mode=True),
                AveragePool((2, 3), 2, padding=1, ceil_mode=True),
                AdaptiveAveragePool((4, 5)),
                AdaptiveAveragePool((3, 7)),
            )
        ),
    ],
)
def test_a_network(tmp_path: Path, by: By, noise: float, graph: Graph) -> None:
    compare(by, noise, graph, tmp_path)


def test_it_trains_where_a_stride_is_wider_than_the_image(tmp_path: Path) -> None:
    made = loaded(written(WIDE_STRIDES, tmp_path))
    made(examples(WIDE_STRIDES)).sum().backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in made.parameters())


def test_what_the_file_says_of_itself() -> None:
    found = session(residual())
    (images,), (logits,) = found.get_inputs(), found.get_outputs()
    assert (images.name, images.type, images.shape) == ("images", "tensor(float)", ["batch", 1, 32, 32])
    assert (logits.name, logits.type, logits.shape) == ("logits", "tensor(float)", ["batch", 10])
    about = found.get_modelmeta()
    assert (about.producer_name, about.custom_metadata_map) == ("aiperf-hpc", {"trial": "3"})


def mixture(gated: bool, wide: bool) -> Graph:
    """Experts that read what autocast leaves wide, as behind a norm of a trunk, or what a product made."""
    layers = [Embedding(7, 12), *([] if wide else [Linear(12)]), Experts(4, 2, 8, gated), Linear(7)]
    return chain(*layers, input=(9,), head=NextSymbol())


@pytest.mark.parametrize(
    "graph",
    [
        *(mixture(gated, wide) for gated in (False, True) for wide in (False, True)),
        standard("plain", head_norm=True),
        standard("gated", tied=True, window=3),
        grouped(5, 12),
        residual(),
    ],
)
@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")  # of torch, for its norms
@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16])
def test_it_is_evaluated_and_trained_under_autocast(
    tmp_path: Path, graph: Graph, narrow: torch.dtype
) -> None:
    made, shown = loaded(written(graph, tmp_path)), examples(graph)
    right = made(shown).detach()
    with torch.autocast("cpu", narrow):
        found = made(shown)
    assert (found - right).abs().max() <= 0.05 * right.abs().max()
    found.float().sum().backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in made.parameters())


def test_as_a_program_it_shows_its_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(written(residual(), tmp_path)), run_name="__main__")
    assert capsys.readouterr().out.startswith("tensor([[")


def test_the_whole_file(as_it_was_read: Callable[[str, str], None]) -> None:
    graph = chain(Conv2d(2, 3, 2), ReLU(), GlobalPool(), Dense(3), input=(1, 4, 4))
    told = {"network": 'trial 3 of "a\nrun"', "test": "3 of 4 wrong"}
    as_it_was_read(torch_file(graph, told, ImagePreparation(4, (33.5,), (78.25,))), "small.py.txt")


def test_a_strangers_names_are_names_only() -> None:
    names = ["input.1", "train", "a.b", "a_b", "import os;#", "__init__", "9", "é", "logits", "…"]
    layers: list[Layer] = [Conv2d(2), *[ReLU()] * (len(names) - 3), GlobalPool(), Dense(2)]
    reads = ["input", *names]
    graph = Graph((1, 4, 4), tuple(Node(n, layer, (r,)) for n, layer, r in zip(names, layers, reads)))
    safe = "images input_1 train_2 a_b a_b_2 import_os init node_9 node logits_2 node_2"
    assert list(identifiers(graph).values()) == safe.split()
    assert '"' not in re.sub(r'"""|"\.safetensors"|"__main__"', "", torch_file(graph, {"x": 'x"""\\'}))


def test_no_name_of_a_module_is_taken() -> None:
    assert {name for name in dir(torch.nn.Module()) if not name.startswith("_")} <= TAKEN
