"""The graphed engine over captures that do their work again: buffers, shapes, groups, memory; and the
compiled one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

from aiperf.device.dynamo import CACHE
from aiperf.engines.agreement import difference
from aiperf.engines.compiled import Compiled
from aiperf.engines.engine import Engine, Passes
from aiperf.engines.graphed import WARM_UP, WARM_UP_WRAPPED, Graphed
from aiperf.engines.registry import FusedGraphed
from aiperf.measuring.training_step import batch
from nas.graph import Graph
from nas.seeds import residual
from nas.text_seeds import llama
from tests.aiperf.engines.recording import TEXTS, Averaging, Recording, batch_of, passes_of, recording

SEED = residual((1, 8, 8), 3)
# With one stage or block, because each further one would be compiled, too.
SMALL = residual((1, 8, 8), 3, (4,))
SMALL_TEXT = llama((12,), 256, blocks=1, heads=2, groups=1, width=16, hidden=24)


def gradients(passes: Passes) -> list[torch.Tensor]:
    return [each.grad.clone() for each in passes.network.parameters() if each.grad is not None]


def begun(passes: Passes) -> Graphed:
    engine = Graphed(passes)
    engine.prepare(*batch_of(SEED, 4, seed=9))
    return engine


@pytest.mark.parametrize("format", ["fp32", "bf16"])
def test_a_replay_makes_the_step_of_the_batch_that_it_is_given(format: str) -> None:
    passes = passes_of(SEED, format=format, label_smoothing=0.1)
    engine, eager = begun(passes), Engine(passes)
    for seed in range(3):
        examples, labels = batch_of(SEED, 4, seed)
        loss, found = engine.step(examples, labels), gradients(passes)
        assert torch.equal(loss, eager.step(examples, labels))
        assert all(map(torch.equal, found, gradients(passes)))
    assert captured(passes).done == ["warm up"] * WARM_UP + ["record"] + ["replay"] * 3


def test_gradients_are_laid_out_as_fused_optimizers_read_them() -> None:
    """Convolutions give gradients the memory format of the images, here not that of the weights."""
    learnt = []
    for kind in (Engine, Graphed):
        passes = passes_of(SEED)
        passes.network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        optimizer = torch.optim.SGD(passes.network.parameters(), 0.1, 0.9, fused=True)
        engine, batch = kind(passes), batch_of(SEED, 4)
        engine.prepare(*batch)
        for _ in range(2):
            engine.step(*batch)
            optimizer.step()
        learnt.append(list(passes.network.parameters()))
        assert kind is Engine or difference(Engine(passes), engine, *batch) == ""
    assert all(map(torch.equal, *learnt))


def captured(passes: Passes) -> object:
    assert isinstance(passes.device, Recording)
    return passes.device.captured[-1]


def test_a_last_smaller_step_is_eager() -> None:
    passes = passes_of(SEED)
    engine = begun(passes)
    engine.step(*batch_of(SEED, 3))
    assert "replay" not in captured(passes).done
    assert len(gradients(passes)) == len(list(passes.network.parameters()))


def test_after_a_move_it_is_captured_anew_and_lends_no_memory() -> None:
    """Horovod lays the parameters out anew, and gives gradients other memory."""
    passes = passes_of(SEED)
    engine = begun(passes)
    passes.network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    engine.moved(*batch_of(SEED, 4))
    for seed in range(2):
        examples, labels = batch_of(SEED, 4, seed)
        engine.step(examples, labels)
        found = gradients(passes)
        for parameter in passes.network.parameters():
            assert parameter.grad is not None
            assert parameter.grad.stride() == parameter.stride()
            parameter.grad.fill_(9.0)  # as what averages them may
        Engine(passes).step(examples, labels)
        assert all(map(torch.equal, found, gradients(passes)))
    assert passes.device.captured[-1].done.count("record") == 1  # type: ignore[attr-defined]


def test_alone_no_hook_is_called_inside_a_capture() -> None:
    """Horovod sends in one, which must not be captured."""
    passes = passes_of(SEED)
    averaging = Averaging(passes.network)
    begun(passes).step(*batch_of(SEED, 4))
    assert averaging.heard == 0


def test_what_wraps_the_network_is_captured_with_its_hooks_and_after_enough_steps() -> None:
    passes = passes_of(SEED)
    engine = Graphed(passes)
    engine.module = averaging = Averaging(passes.network)
    engine.prepare(*batch_of(SEED, 4))
    assert averaging.heard == 0  # no rank waits while another may still fail
    engine.step(*batch_of(SEED, 4, seed=5))
    assert averaging.heard == len(list(passes.network.parameters()))
    assert Graphed.begins(wrapped=True) == WARM_UP_WRAPPED
    assert Graphed.begins(wrapped=False) == 0


def test_the_fused_step_is_captured_and_no_other() -> None:
    """Alone, and in a group, where what averages gradients is around the network with its plain plan."""
    passes = passes_of(SEED)
    batch, plan = batch_of(SEED, 4), passes.network.plan
    assert difference(Engine(passes), FusedGraphed(passes), *batch) == ""
    for averaging in (None, Averaging(passes.network)):
        engine, made = FusedGraphed(passes), list[str]()
        engine.module = averaging or engine.module
        engine.answers.plan = tuple((noted(run, made), *rest) for run, *rest in engine.answers.plan)  # type: ignore[misc]
        engine.prepare(*batch)
        made.clear()
        engine.step(*batch)
        assert made.count("Normalise") == 7
        assert averaging is None or averaging.heard == len(list(passes.network.parameters()))
        assert passes.network.plan is plan


def noted(run: Callable[..., Any], made: list[str]) -> Callable[..., Any]:
    """The step of a plan, which notes what it is when it runs."""

    def noting(*tensors: torch.Tensor) -> Any:
        made.append(type(run).__name__)
        return run(*tensors)

    return noting


def test_a_graph_that_is_replayed_with_old_images_is_seen() -> None:
    class Forgetful(Graphed):
        def step(self, examples: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            return super().step(self._examples.clone(), labels)

    passes = passes_of(SEED)
    assert difference(Engine(passes), Graphed(passes), *batch_of(SEED, 4)) == ""
    assert difference(Engine(passes), Forgetful(passes), *batch_of(SEED, 4)) != ""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore")  # those of inductor itself
@pytest.mark.parametrize(("graph", "format"), [(SMALL, "bf16"), (SMALL_TEXT, "fp32")], ids=["images", "text"])
def test_a_compiled_step_is_the_eager_one_and_a_last_smaller_step_is_eager(graph: Graph, format: str) -> None:
    passes = passes_of(graph, format=format, label_smoothing=0.1)
    eager, engine, whole = Engine(passes), Compiled(passes), batch(graph, passes.device, 8)
    assert difference(eager, engine, *whole) == ""
    graphs = counters["stats"]["unique_graphs"]
    assert graphs > 0
    engine.step(*whole)
    small = batch(graph, passes.device, 5)
    assert torch.equal(engine.step(*small), eager.step(*small))
    assert counters["stats"]["unique_graphs"] == graphs


@pytest.mark.slow
def test_compiled_code_is_not_loaded_from_a_folder_that_others_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inductor's own folder in /tmp could be made by anybody first."""
    monkeypatch.delenv(CACHE, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    device, planted = passes_of(SMALL).device, tmp_path / f"aiperf-hpc-{os.getuid()}"
    Compiled(passes_of(SMALL))
    assert Path(os.environ[CACHE]) == planted / "torchinductor"
    assert Compiled.why_not(device) == ""
    monkeypatch.delenv(CACHE)
    planted.chmod(0o777)
    remedy = f"set {CACHE} to a folder of your own"
    assert (
        Compiled.why_not(device)
        == f"{planted} can be changed by other users (mode 777; `chmod go-w` corrects it); {remedy}"
    )
    monkeypatch.setenv(CACHE, str(tmp_path / "link"))
    (tmp_path / "link").symlink_to(tmp_path)
    assert Compiled.why_not(device) == f"{tmp_path / 'link'} is a symbolic link; {remedy}"


@pytest.mark.parametrize("graph", TEXTS.values(), ids=TEXTS)
def test_random_windows_are_bytes_and_what_follows_them(graph: Graph) -> None:
    symbols, targets = batch(graph, recording(), 64)
    assert symbols.dtype == targets.dtype == torch.int64
    assert symbols.shape == targets.shape == (64, *graph.input)
    assert torch.equal(symbols[:, 1:], targets[:, :-1])
    assert (int(symbols.min()), int(symbols.max())) == (0, 255)


@pytest.mark.parametrize("format", ["fp32", "bf16"])
@pytest.mark.parametrize("graph", TEXTS.values(), ids=TEXTS)
def test_a_captured_step_of_text_is_the_eager_one(graph: Graph, format: str) -> None:
    passes = passes_of(graph, format=format, label_smoothing=0.1)
    assert difference(Engine(passes), Graphed(passes), *batch(graph, passes.device, 4)) == ""
