"""Networks of text really learn, their children go on where they were, and experts part."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from aiperf.config import Config, LimitsConfig
from aiperf.device import bind
from aiperf.engines.registry import OF_EXPERTS, why_not
from aiperf.errors import DataError
from aiperf.parallel.parallel import Solo, make_step
from aiperf.proposing import plan
from aiperf.proposing.pace import Pace
from aiperf.ranks.world import ALONE
from aiperf.tasks.language.data import TextData
from aiperf.tasks.language.tally import UNIT, Predicted
from aiperf.training.built_trial import BuiltTrial, build
from aiperf.training.evaluation import evaluate
from aiperf.training.kept_network import Kept
from aiperf.training.train import train
from aiperf.training.worker import Worker
from aiperf.wire.messages import Setup, Validated
from aiperf.wire.trial import State
from nas.modules import Network
from nas.morphisms import TEXT_MIX
from nas.morphisms.text import DeepenPlain, GateMLP, Upcycle
from nas.record import graph_to_json
from tests.aiperf.engines.recording import recording
from tests.aiperf.training.test_worker import Told
from tests.aiperf.training.text_trials import (
    GRAPH,
    START,
    TEXT,
    TRAINING,
    UNSEEN,
    WINDOW,
    infinite,
    rank_of,
    text_trial,
)

FEW = 12  # steps in which a child must not lose what its parent knew
KINDS = (DeepenPlain, *(kind for kind in TEXT_MIX if kind is not DeepenPlain))
"""All that there are; GateMLP finds a place in what DeepenPlain adds."""


@cache
def learnt() -> tuple[Kept, list[Predicted]]:
    told, rank = list[object](), rank_of()
    attempt = build(rank, text_trial(weight_decay=1e-3), 1, START)
    end = train(rank, attempt, Pace(), told.append)
    assert end.state is State.COMPLETE
    assert end.kept is not None
    tallies = [message.segment.tally for message in told if isinstance(message, Validated)]
    assert all(isinstance(tally, Predicted) for tally in tallies)
    return end.kept, tallies  # type: ignore[return-value]


def bits_per_byte(kept: Kept) -> float:
    rank = rank_of()
    tally, _ = evaluate(rank, build(rank, text_trial(), 1, kept).network, rank.data.validation)
    assert isinstance(tally, Predicted)
    return tally.bits_per_byte


def losses(kept: Kept, steps: int, rate: float = 0.002) -> list[float]:
    """Losses of the next steps, always on the same batches."""
    return stepped(build(rank_of(), text_trial(learning_rate=rate), 1, kept), steps)


def stepped(attempt: BuiltTrial, steps: int) -> list[float]:
    """The losses."""
    found = []
    for _ in range(steps):
        found.append(float(attempt.engine.step(*attempt.batches.next)))
        make_step(attempt.optimizer, attempt.scaler, 1.0)
        attempt.batches.load()
    return found


def test_a_text_that_repeats_itself_is_learnt_and_kept_as_it_was_validated() -> None:
    """From eight bits; what is left is in the first bytes of a window, before which nothing is seen."""
    before, (kept, tallies) = bits_per_byte(START), learnt()
    tally = tallies[-1]
    assert before > 7.9
    assert tally.bits_per_byte < 0.15
    assert tally.of == len(TEXT) // WINDOW
    assert tally.bytes == tally.of * WINDOW
    assert bits_per_byte(kept) == min(tally.bits_per_byte for tally in tallies)
    assert set(kept.state) == {"exp_avg", "exp_avg_sq", "step"}
    assert {int(steps) for steps in kept.state["step"].values()} <= {160, 168}


def test_a_child_begins_as_its_parent_and_does_not_forget() -> None:
    """By one edit of each kind, all on top of each other, with the optimizer's state as it is carried."""
    child, rng = learnt()[0], random.Random(1)
    before, alone = bits_per_byte(child), losses(child, FEW)
    for kind in KINDS:
        child = child.grown(kind.propose(child.graph, rng))
        assert bits_per_byte(child) == pytest.approx(before, rel=1e-4), kind
    assert child.graph.num_parameters > 2 * GRAPH.num_parameters
    assert GateMLP in KINDS
    grown = losses(child, FEW)
    assert grown[0] == pytest.approx(alone[0], rel=1e-4)
    assert np.mean(grown) < 1.1 * np.mean(alone)
    assert np.max(np.array(grown) / alone) < 1.8


@pytest.mark.parametrize("at_once", [64, 1 << 20])
def test_a_validation_is_cut_by_positions(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no more of them than that are on a device at once; the sum does not depend on it."""
    rank, network, largest = rank_of(), Network(GRAPH), [0]
    network.load(learnt()[0].weights)
    network.register_forward_pre_hook(lambda _, inputs: largest.append(inputs[0].numel()))
    whole, _ = evaluate(rank, network, rank.data.validation)
    monkeypatch.setattr(plan, "POSITIONS_AT_ONCE", at_once)
    largest.clear()
    tally, _ = evaluate(rank, network, rank.data.validation)
    assert max(largest) == min(at_once, tally.of * WINDOW)
    assert (tally.of, tally.numbers[2]) == (whole.of, whole.numbers[2])
    assert abs(tally.numbers[1] - whole.numbers[1]) <= 1e-6 * UNIT * tally.numbers[2]


def test_the_first_step_is_clipped_too() -> None:
    """It is made apart from all others. SGD moves by the rate times the norm that gradients are cut to."""
    rank = rank_of(optimizer="sgd", gradient_clip=1e-2, warmup=0.0)
    chosen = text_trial(batch_size=rank.data.train.num_examples, momentum=0.0, weight_decay=0.0)
    attempt = build(rank, replace(chosen, epochs=1), 1, START)
    assert attempt.plan.steps == 1
    train(rank, attempt, Pace(), lambda message: None)
    moved = [
        tensor.detach().numpy() - START.weights[name] for name, tensor in attempt.network.tensors().items()
    ]
    norm = np.sqrt(sum(np.square(each, dtype=np.float64).sum() for each in moved))
    assert norm == pytest.approx(1e-2 * attempt.plan.rate(0), rel=1e-3)


def test_a_best_network_that_is_not_finite_on_the_test_part_has_no_result(tmp_path: Path) -> None:
    """One line, and never a bounded number that passes for a result."""
    data = TextData("text", channels=1, size=WINDOW, classes=256)
    config = Config("test", "-", data, TRAINING, LimitsConfig(minutes=1))
    setup, channel = Setup(config, graph_to_json(GRAPH), str(tmp_path), ""), Told()
    worker = Worker(setup, channel, bind("cpu", 0), ALONE, Solo())
    worker.rank, worker.last = rank_of(validation=UNSEEN), (3, learnt()[0])
    assert worker.evaluate(3).trial == 3
    worker.last = (3, infinite())
    with pytest.raises(DataError, match=r"^trial 3, the best, has no result on the test part: .* not finite"):
        worker.evaluate(3)


def test_text_is_trained_in_sixteen_bits() -> None:
    """fp16 with its scaler, whose scale must not be clipped; bf16; both learn as fp32 does."""
    errors = {}
    for format in ("fp32", "bf16", "fp16"):
        rank, told = rank_of(format=format), list[object]()
        train(rank, build(rank, replace(text_trial(), epochs=3), 1, START), Pace(), told.append)
        *_, last = [message.segment for message in told if isinstance(message, Validated)]
        assert last.skipped == 0
        errors[format] = last.error
    assert errors["fp32"] < 0.5
    assert errors == pytest.approx(dict.fromkeys(errors, errors["fp32"]), rel=0.05)


def test_probabilities_are_judged_in_fp32() -> None:
    """Whatever the format: 256 logits of eight bits each would blur the bits of a byte."""
    told = list[torch.Tensor]()
    for format in ("fp32", "bf16"):
        rank = rank_of(format=format)
        network = build(rank, text_trial(), 1, learnt()[0]).network
        plan = network.plan
        evaluate(rank, network, rank.data.validation, look=lambda outputs, targets: told.append(outputs))
        assert network.plan is plan
    assert {outputs.dtype for outputs in told} == {torch.float32}
    narrow = told[-1].bfloat16().float()
    assert (narrow != told[-1]).float().mean() > 0.9


MIXTURE, STEPS = "block2.mlp.out", 10


def test_experts_part_within_ten_steps_and_each_gets_bytes() -> None:
    """Equal at first; every two of them then differ by a good part of what each has learnt."""
    start = START.grown(Upcycle(MIXTURE, 8, 2, 1))
    attempt = build(rank_of(), text_trial(learning_rate=1e-3), 1, start)
    loads = watched(attempt.network)
    stepped(attempt, STEPS)
    assert len(loads) == STEPS
    assert min(np.sum(loads, axis=0)) > 0
    tensors = attempt.network.tensors()
    for tensor in ("gate", "up", "down"):
        name = f"{MIXTURE}.{tensor}"
        found, before = tensors[name].detach().flatten(1), torch.from_numpy(start.weights[name]).flatten(1)
        assert torch.equal(before, before[:1].expand_as(before))
        apart, moved = torch.cdist(found, found), (found - before).norm(dim=1)
        assert float(moved.min()) > 0
        assert float((apart + torch.eye(8) * 1e9).min()) > 0.1 * float(moved.max()), tensor
    router = tensors[f"{MIXTURE}.router"].detach()
    assert not torch.equal(router, torch.from_numpy(start.weights[f"{MIXTURE}.router"]))
    assert tensors[f"{MIXTURE}.balance"].abs().max() > 0


@pytest.mark.parametrize("name", ["fused", "graphed", "compiled"])
def test_steps_with_experts_are_eager(name: str) -> None:
    graph, device = START.grown(Upcycle(MIXTURE, 4, 2, 0)).graph, recording()
    assert why_not("eager", graph, device, TRAINING, 1) == ""
    assert why_not(name, graph, device, TRAINING, 1)
    assert name == "fused" or why_not(name, graph, device, TRAINING, 1) == OF_EXPERTS
    assert why_not("graphed", GRAPH, device, TRAINING, 1) == ""
    assert why_not("graphed", GRAPH, bind("cpu", 0), TRAINING, 1) != OF_EXPERTS


def watched(network: Any) -> list[list[int]]:
    """The rows of each expert, of every step from now on."""
    names = [node.name for node in network.graph.nodes]
    module, loads = network.layers[names.index(MIXTURE)], list[list[int]]()
    made = module._made
    module._made = lambda rows, load: (loads.append(load), made(rows, load))[1]
    return loads
