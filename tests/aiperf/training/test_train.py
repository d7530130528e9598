"""Every hyper-parameter of a trial reaches its steps: parameters beside those of steps made by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from time import perf_counter
from typing import Any

import pytest
import torch

from aiperf.data import load
from aiperf.device import bind
from aiperf.parallel.parallel import Solo
from aiperf.proposing.pace import Pace
from aiperf.training.built_trial import LOSS_SCALE, Rank, build
from aiperf.training.kept_network import Kept
from aiperf.training.train import train
from aiperf.wire.messages import Steps
from aiperf.wire.trial import State, Trial
from nas.modules import Network
from nas.weights import initial
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


def trained(chosen: Trial, **training: Any) -> dict[str, torch.Tensor]:
    rank = alone(**training)
    attempt = build(rank, chosen, 1, START)
    state = train(rank, attempt, Pace(), lambda message: None).state
    assert state is State.COMPLETE
    return {name: tensor.detach().clone() for name, tensor in attempt.network.tensors().items()}


def by_hand(chosen: Trial) -> dict[str, torch.Tensor]:
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


def difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return max(float((one[name].detach() - other[name].detach()).abs().max()) for name in one)


def chosen(**hyper: Any) -> Trial:
    return replace(trial(0, **(CHOSEN | hyper)), epochs=1)


@pytest.mark.contract
def test_a_trial_is_trained_as_its_hyper_parameters_say() -> None:
    assert difference(trained(chosen()), by_hand(chosen())) < 1e-5


def test_validations_in_between_leave_the_training_alone() -> None:
    """Statistics of batch norm included: training goes on with those of each batch."""
    once, often = trained(chosen()), trained(chosen(), validate_every_examples=16)
    assert difference(once, often) == 0


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
    one = trained(chosen(dropout=0.5))
    torch.rand(7)
    assert difference(one, trained(chosen(dropout=0.5))) == 0


def test_an_overflow_is_counted_in_its_own_segment() -> None:
    attempt = build(alone(format="fp16"), chosen(), 1, START)
    attempt.scaler.scale(torch.ones(()))
    for halvings, new in ((0, 0), (2, 2), (2, 0), (3, 1)):
        attempt.scaler.update(LOSS_SCALE / 2**halvings)
        assert attempt.new_overflows() == new
