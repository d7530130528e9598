"""Every hyper-parameter of a trial reaches its steps, beside steps made by hand; and by another engine they
are the same steps, or a fallback that is reported."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import pytest
import torch
from torch import Tensor

from aiperf.data import load
from aiperf.device import bind
from aiperf.device.npu import Npu
from aiperf.engines import registry
from aiperf.engines.engine import Engine
from aiperf.engines.fused import Fused
from aiperf.engines.fused.tensors import Unfit
from aiperf.measuring.precision import used_formats
from aiperf.parallel.parallel import Parallel, Solo
from aiperf.proposing.pace import Pace
from aiperf.tasks.tally import Tally
from aiperf.training.built_trial import LOSS_SCALE, Rank, build
from aiperf.training.kept_network import Kept
from aiperf.training.train import train
from aiperf.wire.formats import PRODUCTS
from aiperf.wire.messages import Steps, Validated
from aiperf.wire.reports import Fallback
from aiperf.wire.trial import State, Trial
from nas.modules import Network
from nas.weights import initial
from tests.aiperf.device.vendors import OnlyContiguous
from tests.aiperf.engines.recording import Again, Recording, recording
from tests.aiperf.training.test_worker import CLASSES, CONFIG, SEED, trial

START = Kept(SEED, initial(SEED, 1), {})
CHOSEN: dict[str, Any] = {
    "learning_rate": 0.03,
    "batch_size": 16,
    "momentum": 0.7,
    "weight_decay": 0.02,
    "label_smoothing": 0.15,
}
STEPS = 4  # of 16 images: all 64 once


def alone(**training: Any) -> Rank:
    data = load(CONFIG.data, torch.device("cpu"), 1)
    return Rank(bind("cpu", 0), data, replace(CONFIG.training, warmup=0.0, **training), Solo())


@dataclass(frozen=True)
class Trained:
    learnt: dict[str, Tensor]
    validated: list[tuple[int, Tally]]
    """The steps of each segment, and what its validation came to."""
    fallbacks: list[tuple[str, str]]
    """Engines that were not used, with the reasons."""


def trained(
    engine: str = "eager",
    device: Recording | None = None,
    group: Parallel | None = None,
    every: int = CONFIG.training.validate_every_examples,
    **hyper: Any,
) -> Trained:
    rank, told = alone(validate_every_examples=every), list[Any]()
    rank = replace(rank, device=device or recording(), parallel=group or Solo())
    attempt = build(rank, chosen(**hyper), 1, START)
    attempt.engine_name = engine
    assert train(rank, attempt, Pace(), told.append).state is State.COMPLETE
    return Trained(
        {name: tensor.detach().clone() for name, tensor in attempt.network.tensors().items()},
        [(each.segment.steps, each.segment.tally) for each in told if isinstance(each, Validated)],
        [(each.engine, each.reason) for each in told if isinstance(each, Fallback)],
    )


def by_hand(chosen: Trial) -> dict[str, Tensor]:
    """SGD with momentum by its formula (Sutskever et al., ICML 2013, as torch writes it), decay of weights
    but not of batch norm and biases, labels smoothed over all classes (Szegedy et al., CVPR 2016)."""
    hyper = chosen.hyper
    network = Network(SEED)
    network.load(START.weights)
    parameters = [tensor for tensor in network.tensors().values() if tensor.requires_grad]
    velocity = [torch.zeros_like(tensor) for tensor in parameters]
    stream = load(CONFIG.data, torch.device("cpu"), 1).train.stream(hyper.batch_size, chosen.seed, 0, 1)
    for step in range(STEPS):
        examples, labels = next(stream)
        target = torch.full((len(labels), CLASSES), hyper.label_smoothing / CLASSES)
        target[torch.arange(len(labels)), labels] += 1 - hyper.label_smoothing
        loss = -(target * network(examples).log_softmax(dim=1)).sum(dim=1).mean()
        rate = hyper.learning_rate * (1 + math.cos(math.pi * step / STEPS)) / 2
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for tensor, gradient, speed in zip(parameters, gradients, velocity):
                decay = hyper.weight_decay if tensor.ndim > 1 else 0.0
                speed.mul_(hyper.momentum).add_(gradient + decay * tensor)
                tensor.sub_(rate * speed)
    return network.tensors()


def difference(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    return max(float((one[name].detach() - other[name].detach()).abs().max()) for name in one)


def chosen(**hyper: Any) -> Trial:
    return replace(trial(0, **(CHOSEN | hyper)), epochs=1)


@pytest.mark.contract
def test_a_trial_is_trained_as_its_hyper_parameters_say() -> None:
    assert difference(trained().learnt, by_hand(chosen())) < 1e-5


def test_validations_in_between_leave_the_training_alone() -> None:
    """Statistics of batch norm included: training goes on with those of each batch."""
    assert difference(trained().learnt, trained(every=16).learnt) == 0


def test_the_rate_falls_before_the_deadline() -> None:
    """A trial that the deadline cuts off, with next to nothing done of a plan of 100,000 epochs."""
    rank, rates = alone(), list[float]()
    attempt = build(rank, replace(chosen(), epochs=100_000), 1, START)
    attempt.plan = replace(attempt.plan, segment_steps=attempt.plan.steps, warmup_steps=0, decay="linear")

    def report(message: object) -> None:
        if isinstance(message, Steps):
            rates.append(attempt.optimizer.param_groups[0]["lr"] / attempt.plan.peak_rate)

    pace = Pace(deadline=perf_counter() + 1.0, block_seconds=0.03)
    state = train(rank, attempt, pace, report).state
    assert state is State.STOPPED
    assert max(rates[1:]) > 0.8
    assert rates[-1] < 0.2


def test_dropout_follows_the_trial_and_not_what_was_drawn_before() -> None:
    one = trained(dropout=0.5)
    torch.rand(7)
    assert difference(one.learnt, trained(dropout=0.5).learnt) == 0


def test_an_overflow_is_counted_in_its_own_segment() -> None:
    attempt = build(alone(format="fp16"), chosen(), 1, START)
    attempt.scaler.scale(torch.ones(()))
    for halvings, new in ((0, 0), (2, 2), (2, 0), (3, 1)):
        attempt.scaler.update(LOSS_SCALE / 2**halvings)
        assert attempt.new_overflows() == new


# By another engine


class Wrong(Engine):
    name = "graphed"
    is_made_anew = True

    def step(self, examples: Tensor, labels: Tensor) -> Tensor:
        return 2 * super().step(examples, labels)


def trains_as_eager(
    wanted: str, device: Recording | None = None, group: Parallel | None = None, **hyper: Any
) -> list[tuple[str, str]]:
    """To the last bit. Engines that were not used are returned."""
    eager, found = trained("eager", None, group, **hyper), trained(wanted, device, group, **hyper)
    assert found.validated == eager.validated
    assert difference(found.learnt, eager.learnt) == 0
    return found.fallbacks


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_captured_steps_train_as_eager_ones_do(dropout: float) -> None:
    """The last step of an epoch of 64 images, 24 at once, is as large as the others: passes run on."""
    device = recording()
    assert trains_as_eager("graphed", device, dropout=dropout, batch_size=24) == []
    (capture,) = device.captured
    assert capture.done.count("replay") == 1 + 3  # checked, then three steps


def test_a_trial_of_contiguous_images_needs_no_other_format(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device with the memory format of Ascend's."""
    eager = trained("eager")
    with OnlyContiguous():
        with pytest.raises(RuntimeError, match="Only contiguous_format or preserve_format is supported"):
            trained("eager")
        monkeypatch.setattr(Recording, "layout", Npu.layout)
        device = recording()
        assert used_formats(device, "fp32") == dict.fromkeys(PRODUCTS, "fp32")
        found = trained("eager", device)
    assert all(torch.allclose(found.learnt[name], each, atol=1e-4) for name, each in eager.learnt.items())
    assert len(found.validated) == len(eager.validated)


def test_a_wrong_engine_is_not_used_and_the_trial_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.KINDS, "graphed", Wrong)  # type: ignore[misc]
    ((engine, reason),) = trains_as_eager("graphed")
    assert engine == "graphed"
    assert reason.startswith("the loss is")


def test_fused_steps_are_asked_once_whether_they_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    assert trained("fused").fallbacks == []

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
