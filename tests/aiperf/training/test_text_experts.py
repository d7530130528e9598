"""Experts that an MLP became: they part, all are asked, and their steps are eager."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from aiperf.device import bind
from aiperf.engines.made import OF_EXPERTS, why_not
from aiperf.parallel.parallel import make_step
from aiperf.training.built_trial import build
from aiperf.training.kept_network import Kept
from nas.morphisms.text import Upcycle
from tests.aiperf.engines.recording import recording
from tests.aiperf.training.text_trials import GRAPH, START, TRAINING, rank_of, text_trial

MIXTURE, STEPS = "block2.mlp.out", 10


def upcycled(experts: int, seed: int) -> Kept:
    return START.grown(Upcycle(MIXTURE, experts, 2, seed))


@pytest.mark.parametrize(("experts", "seed"), [(4, 0), (8, 1)])
def test_experts_part_within_ten_steps_and_each_gets_bytes(experts: int, seed: int) -> None:
    """Equal at first; every two of them then differ by a good part of what each has learnt."""
    start = upcycled(experts, seed)
    attempt = build(rank_of(), text_trial(learning_rate=1e-3), 1, start)
    loads = watched(attempt.network)
    for _ in range(STEPS):
        attempt.engine.step(*attempt.batches.next)
        make_step(attempt.optimizer, attempt.scaler, 1.0)
        attempt.batches.load()
    assert len(loads) == STEPS
    assert min(np.sum(loads, axis=0)) > 0
    tensors = attempt.network.tensors()
    for tensor in ("gate", "up", "down"):
        name = f"{MIXTURE}.{tensor}"
        found, before = tensors[name].detach().flatten(1), torch.from_numpy(start.weights[name]).flatten(1)
        assert torch.equal(before, before[:1].expand_as(before))
        apart, moved = torch.cdist(found, found), (found - before).norm(dim=1)
        assert float(moved.min()) > 0
        assert float((apart + torch.eye(experts) * 1e9).min()) > 0.1 * float(moved.max()), tensor
    router = tensors[f"{MIXTURE}.router"].detach()
    assert not torch.equal(router, torch.from_numpy(start.weights[f"{MIXTURE}.router"]))
    assert tensors[f"{MIXTURE}.balance"].abs().max() > 0


def test_a_balance_that_is_kept_goes_on() -> None:
    """Through the file of a trial and a further morphism."""
    start = upcycled(4, 0)
    balance = np.array([1, -2, 3, -4], np.float32)
    kept = Kept(start.graph, {**start.weights, f"{MIXTURE}.balance": balance}, {})
    child = kept.grown(Upcycle("block1.mlp.out", 8, 2, 0))
    assert child.weights[f"{MIXTURE}.balance"].tolist() == [1, -2, 3, -4]
    assert child.weights["block1.mlp.out.balance"].tolist() == [0] * 8


@pytest.mark.parametrize("name", ["fused", "graphed", "compiled"])
def test_steps_with_experts_are_eager(name: str) -> None:
    graph, device = upcycled(4, 0).graph, recording()
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
