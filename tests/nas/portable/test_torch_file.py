"""A network as a Python file: it computes what the network computes, in a process that lacks this program."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from safetensors.numpy import save_file

from nas.graph import Graph, Node
from nas.layers import Conv2d, Dense, GlobalPool, Layer, MaxPool, ReLU
from nas.portable.names import TAKEN, PortableError, identifiers
from nas.portable.torch_file import torch_file, torch_state
from nas.portable.torch_lines import line_of
from nas.seeds import residual, resnet50
from nas.text_seeds import TEXT_SEEDS
from tests.nas.graphs import LAYERS, chain, graphs, grouped
from tests.nas.portable.networks import Unheard, answers, examples, random_weights
from tests.nas.text.samples import texts


def written(graph: Graph, tmp_path: Path, name: str = "network") -> Path:
    path = tmp_path / f"{name}.py"
    path.write_text(torch_file(graph, {"network": "trial 3"}), encoding="utf-8")
    save_file(torch_state(graph, random_weights(graph)), path.with_suffix(".safetensors"))
    return path


def loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("written", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.load()


def compare(graph: Graph, tmp_path: Path) -> None:
    found = loaded(written(graph, tmp_path)).double()
    with torch.inference_mode():
        logits = found(examples(graph)).numpy()
    assert logits.shape == answers(graph).shape
    np.testing.assert_allclose(logits, answers(graph), rtol=1e-9, atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(graphs())
def test_any_network_of_images(tmp_path_factory: pytest.TempPathFactory, graph: Graph) -> None:
    compare(graph, tmp_path_factory.mktemp("images"))


@settings(max_examples=20, deadline=None)
@given(texts())
def test_any_network_of_text(tmp_path_factory: pytest.TempPathFactory, graph: Graph) -> None:
    compare(graph, tmp_path_factory.mktemp("text"))


@pytest.mark.parametrize("graph", [grouped(), resnet50((3, 32, 32))], ids=["grouped", "50"])
def test_a_network_of_images(tmp_path: Path, graph: Graph) -> None:
    compare(graph, tmp_path)


@pytest.mark.parametrize("name", ["gpt-4x128", "llama-4x128"])
def test_a_seed_of_text(tmp_path: Path, name: str) -> None:
    compare(TEXT_SEEDS[name]((16,)), tmp_path)


def test_it_trains_where_a_stride_is_wider_than_the_image(tmp_path: Path) -> None:
    """Shapes of which oneDNN's own gradients are wrong: see nas/modules/images.py."""
    graph = chain(
        Conv2d(4, 1, 2), Conv2d(6, (3, 1), 9), Conv2d(6, 3, 5, padding=2), MaxPool(1, 2),
        GlobalPool(), Dense(3), input=(3, 9, 9),
    )  # fmt: skip
    compare(graph, tmp_path)
    network = loaded(written(graph, tmp_path))
    network(examples(graph).float()).sum().backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in network.parameters())


def test_it_runs_where_this_program_is_not(tmp_path: Path) -> None:
    graph = residual()
    path = written(graph, tmp_path)
    code = (
        "import sys; sys.path = [p for p in sys.path if p]; import network, torch, pathlib\n"
        "images = torch.frombuffer(bytearray(pathlib.Path('images').read_bytes()), dtype=torch.float64)\n"
        "logits = network.load().double()(images.view(-1, 1, 32, 32)).tolist()\n"
        "ours = {'nas', 'aiperf', 'analysis', 'launch'}\n"
        "print([logits, sorted(ours & {name.partition('.')[0] for name in sys.modules})])"
    )
    (tmp_path / "images").write_bytes(examples(graph).numpy().tobytes())
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True,
        text=True, timeout=100,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    logits, ours = ast.literal_eval(ran.stdout)
    assert ours == []
    np.testing.assert_allclose(logits, answers(graph), rtol=1e-9, atol=1e-9)
    shown = subprocess.run(
        [sys.executable, path.name], cwd=tmp_path, env={}, capture_output=True, text=True, timeout=100
    )
    assert shown.stdout.startswith("tensor([["), shown.stderr


def test_the_whole_file() -> None:
    graph = chain(Conv2d(2, 3, 2), ReLU(), GlobalPool(), Dense(3), input=(1, 4, 4))
    text = torch_file(graph, {"network": 'trial 3 of "a\nrun"', "test": "3 of 4 wrong"})
    assert text == (Path(__file__).parent / "small.py.txt").read_text(encoding="utf-8")


def test_a_strangers_names_are_names_only() -> None:
    names = ["input.1", "train", "a.b", "a_b", "import os;#", "__init__", "9", "é", "logits", "…"]
    layers: list[Layer] = [Conv2d(2), *[ReLU()] * (len(names) - 3), GlobalPool(), Dense(2)]
    reads = ["input", *names]
    graph = Graph((1, 4, 4), tuple(Node(n, layer, (r,)) for n, layer, r in zip(names, layers, reads)))
    found = identifiers(graph)
    assert list(found.values()) == [
        "images", "input_1", "train_2", "a_b", "a_b_2", "import_os", "init", "node_9", "node", "logits_2",
        "node_2",
    ]  # fmt: skip
    assert '"' not in re.sub(r'"""|"\.safetensors"|"__main__"', "", torch_file(graph, {"x": 'x"""\\'}))


def test_no_name_of_a_module_is_taken() -> None:
    assert {name for name in dir(torch.nn.Module()) if not name.startswith("_")} <= TAKEN


def test_every_layer_has_a_line() -> None:
    assert line_of.registry.keys() >= LAYERS


def test_a_layer_of_somebody_else_is_refused_by_name() -> None:
    graph = chain(Conv2d(2), Unheard(), GlobalPool(), input=(1, 4, 4))
    with pytest.raises(
        PortableError, match=r"^Unheard is not known to nas\.portable: it cannot be written for PyTorch$"
    ):
        torch_file(graph, {})
