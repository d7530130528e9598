"""A trial by another engine: the same steps, or a fallback that is reported."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from aiperf.data import load
from aiperf.device.npu import Npu
from aiperf.engines import registry
from aiperf.engines.engine import Engine
from aiperf.engines.fused import Fused
from aiperf.engines.fused.tensors import Unfit
from aiperf.measuring.precision import used_formats
from aiperf.parallel.parallel import Parallel, Solo
from aiperf.proposing.pace import Pace
from aiperf.tasks.tally import Tally
from aiperf.training.built_trial import Rank, build
from aiperf.training.train import train
from aiperf.wire.formats import PRODUCTS
from aiperf.wire.messages import Validated
from aiperf.wire.reports import Fallback
from tests.aiperf.device.vendors import OnlyContiguous
from tests.aiperf.engines.recording import Again, Recording, recording
from tests.aiperf.training.test_train import START, alone, chosen
from tests.aiperf.training.test_worker import CONFIG


class Wrong(Engine):
    name = "graphed"
    is_made_anew = True

    def step(self, examples: Tensor, labels: Tensor) -> Tensor:
        return 2 * super().step(examples, labels)


def trained(
    wanted: str, device: Recording | None = None, group: Parallel | None = None, **hyper: Any
) -> tuple[dict[str, Tensor], list[tuple[int, Tally]], list[tuple[str, str]]]:
    """What is learnt, what each validation came to, and engines that were not used, with the reasons."""
    device, told = device or recording(), list[Any]()
    rank = Rank(device, load(CONFIG.data, torch.device("cpu"), 1), alone().training, group or Solo())
    attempt = build(rank, chosen(**hyper), 1, START)
    attempt.engine_name = wanted
    train(rank, attempt, Pace(), told.append)
    validated = [(each.segment.steps, each.segment.tally) for each in told if isinstance(each, Validated)]
    fallbacks = [(each.engine, each.reason) for each in told if isinstance(each, Fallback)]
    return {name: each.detach() for name, each in attempt.network.tensors().items()}, validated, fallbacks


def trains_as_eager(
    wanted: str, device: Recording | None = None, group: Parallel | None = None, **hyper: Any
) -> list[tuple[str, str]]:
    """To the last bit. Engines that were not used are returned."""
    eager, validated, _ = trained("eager", None, group, **hyper)
    found, same, fallbacks = trained(wanted, device, group, **hyper)
    assert validated == same
    assert all(torch.equal(found[name], values) for name, values in eager.items())
    return fallbacks


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_captured_steps_train_as_eager_ones_do(dropout: float) -> None:
    """The last step of an epoch of 64 images, 24 at once, is as large as the others: passes run on."""
    device = recording()
    assert trains_as_eager("graphed", device, dropout=dropout, batch_size=24) == []
    (capture,) = device.captured
    assert capture.done.count("replay") == 1 + 3  # checked, then three steps


class Contiguous(Recording):
    """A device with the memory format of Ascend's."""

    layout = Npu.layout


def test_a_trial_of_contiguous_images_needs_no_other_format() -> None:
    eager, validated, _ = trained("eager")
    with OnlyContiguous():
        with pytest.raises(RuntimeError, match="Only contiguous_format or preserve_format is supported"):
            trained("eager")
        device = Contiguous.bind(0)
        assert used_formats(device, "fp32") == dict.fromkeys(PRODUCTS, "fp32")
        found, same, _ = trained("eager", device)
    assert all(torch.allclose(found[name], values, atol=1e-4) for name, values in eager.items())
    assert len(validated) == len(same)


def test_a_wrong_engine_is_not_used_and_the_trial_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.KINDS, "graphed", Wrong)  # type: ignore[misc]
    ((engine, reason),) = trains_as_eager("graphed")
    assert engine == "graphed"
    assert reason.startswith("the loss is")


def test_fused_steps_are_asked_once_whether_they_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    assert trained("fused")[2] == []

    def refuse(*_: object) -> None:
        raise Unfit("not so")

    monkeypatch.setattr(Fused, "prepare", refuse)
    assert trains_as_eager("fused") == [("fused", "Unfit: not so")]


class AsHorovod(Solo):
    """A group of two ranks that are one as the other; nothing wraps their network."""

    ranks = 2

    def sum(self, values: Tensor) -> Tensor:
        return 2 * values

    def total(self, *numbers: int) -> tuple[int, ...]:
        return tuple(2 * number for number in numbers)


class Once(Recording):
    """It captures once, and no more."""

    def capture(self) -> Again:
        if self.captured:
            raise RuntimeError("no second capture")
        return super().capture()


def test_an_engine_that_is_not_ready_again_after_the_group_moved_its_tensors_is_replaced() -> None:
    fallback = ("graphed", "RuntimeError: no second capture")
    assert trains_as_eager("graphed", Once.bind(0), AsHorovod()) == [fallback]
