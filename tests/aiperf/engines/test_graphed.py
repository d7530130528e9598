"""The graphed engine over captures that do their work again: buffers, shapes, groups, memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from aiperf.engines.agreement import difference
from aiperf.engines.engine import Engine, Passes
from aiperf.engines.graphed import WARM_UP, WARM_UP_WRAPPED, Graphed
from aiperf.engines.registry import FusedGraphed
from nas.layers import BatchNorm
from nas.seeds import residual
from tests.aiperf.engines.recording import Recording, batch_of, passes_of

SEED = residual((1, 8, 8), 3)


class Averaging(nn.Module):
    """What averages gradients over a group: around the network, by hooks on its parameters."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.heard = network, 0
        for parameter in network.parameters():
            parameter.register_post_accumulate_grad_hook(self._hear)

    def _hear(self, parameter: torch.Tensor) -> None:
        self.heard += 1

    def forward(self, examples: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.network(examples)
        return answer


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
        assert made.count("Normalise") == sum(isinstance(node.layer, BatchNorm) for node in SEED.nodes)
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
