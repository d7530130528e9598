"""Trials of images and of text in a group of two real ranks, joined by DDP.

    python -m tests.aiperf.training.two_ranks 0|1 DIRECTORY

Each rank prints JSON: the addresses at which it listens, and what it says in courses of the conduct. Of
images by case why it fell back, where engines fail on the second rank only, and the SHA-256 of what it has
learnt. Of text by case how it ended, the tally of its group and its own, and the same.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import torch
from torch import Tensor

from aiperf.data import load
from aiperf.data.training import NotFinite
from aiperf.engines.graphed import WARM_UP_WRAPPED, Graphed
from aiperf.engines.registry import KINDS
from aiperf.parallel.ddp import OF_CAPTURES, Ddp
from aiperf.parallel.parallel import Parallel
from aiperf.proposing.pace import Pace
from aiperf.tasks.tally import Tally
from aiperf.training.built_trial import Rank, build
from aiperf.training.evaluation import evaluate
from aiperf.training.kept_network import Kept
from aiperf.training.rank_log import NoLog
from aiperf.training.train import train
from aiperf.wire.layout import layout
from aiperf.wire.messages import Validated
from aiperf.wire.reports import Fallback, FromGroup
from nas.modules import Network
from nas.morphisms.text import Upcycle
from nas.weights import initial
from tests.aiperf.conduct.driven import in_a_group, meeting_in
from tests.aiperf.engines.recording import recording
from tests.aiperf.training.test_worker import CONFIG, SEED, trial
from tests.aiperf.training.text_trials import START, UNSEEN, infinite, rank_of, text_trial

SGD_RATE = 0.3
MIXTURE, STARVED = "block1.mlp.out", 3
"""Experts, of which the second rank chooses this one for no byte."""
EPOCHS = 2  # of text, of 10 steps and a half: more than DDP needs before its steps are captured


class NoCapture(Graphed):
    """Fails in the middle of the backward pass with hooks. That reaches the first layer last."""

    def prepare(self, examples: Tensor, labels: Tensor) -> None:
        super().prepare(examples, labels)
        with self._parameters[0].register_post_accumulate_grad_hook(self._fail):
            self._with_hooks()

    def _fail(self, parameter: Tensor) -> None:
        raise RuntimeError("no capture here")


class OtherLoss(Graphed):
    def step(self, examples: Tensor, labels: Tensor) -> Tensor:
        return 2 * super().step(examples, labels)


class OtherGradients(Graphed):
    def step(self, examples: Tensor, labels: Tensor) -> Tensor:
        loss = super().step(examples, labels)
        for parameter in self.passes.network.parameters():
            assert parameter.grad is not None
            parameter.grad.mul_(3)
        return loss


IMAGES: dict[str, tuple[str, type[Graphed]]] = {
    "eager": ("eager", Graphed),
    "captured": ("graphed", Graphed),
    "fused": ("fused-graphed", Graphed),
    "not captured": ("graphed", NoCapture),
    "another loss": ("graphed", OtherLoss),
    "other gradients": ("graphed", OtherGradients),
}
"""By name the engine, and what makes the captured steps of the second rank. In bf16; text is in fp32."""


@dataclass
class Said(NoLog):
    """A log that is only remembered."""

    tallies: list[Tally] = field(default_factory=list)

    def answers(self, trial: int, attempt: int, segment: int, tally: Tally) -> None:
        self.tallies.append(tally)


TEXTS: dict[str, tuple[str, dict[str, Any]]] = {
    "untrained": ("", {}),
    "not finite": ("eager", {"validation": UNSEEN}),
    "sgd": ("eager", {"optimizer": "sgd"}),
    "adamw": ("eager", {}),
    "captured": ("graphed", {}),
    "clipped": ("eager", {"optimizer": "sgd", "gradient_clip": 0.1}),
    "experts": ("eager", {"gradient_clip": 0.1}),
    "clipped in fp16": ("graphed", {"optimizer": "sgd", "gradient_clip": 0.1, "format": "fp16"}),
}
"""By name the engine, or nothing where no step is made, and what is unlike `text_trials.TRAINING`. SGD shows
a clip: the steps of AdamW hardly depend on how long gradients are."""


def images_trained(rank: Rank, step: str) -> tuple[list[str], str]:
    torch.manual_seed(1)
    told = list[FromGroup]()
    long = replace(trial(0, batch_size=16, momentum=0.9), epochs=5)
    attempt = build(rank, long, 1, Kept(SEED, initial(SEED, 1), {}))
    assert attempt.plan.steps > WARM_UP_WRAPPED + 1
    attempt.engine_name = step
    train(rank, attempt, Pace(), told.append)
    return [each.reason for each in told if isinstance(each, Fallback)], learnt(attempt.network)


def text_trained(name: str, parallel: Parallel) -> dict[str, Any]:
    step, others = TEXTS[name]
    torch.manual_seed(1)
    rank, told, said = rank_of(parallel, recording(), **others), list[Any](), Said()
    rank = replace(rank, log=said)
    rate = SGD_RATE if rank.training.optimizer == "sgd" else rank.training.learning_rate
    trial = replace(text_trial(learning_rate=rate), epochs=EPOCHS)
    mixed = START.grown(Upcycle(MIXTURE, 4, 2, seed=0))
    attempt = build(rank, trial, 1, {"not finite": infinite(), "experts": mixed}.get(name, START))
    if name == "experts" and parallel.rank == 1:
        attempt.network.tensors()[f"{MIXTURE}.balance"][STARVED] = -1e3
    assert attempt.plan.steps > WARM_UP_WRAPPED + 1
    ended = "COMPLETE"
    if not step:
        whole, _ = evaluate(rank, attempt.network, rank.data.validation, own=said.tallies.append)
        return {"ended": ended, "whole": whole.numbers, "own": said.tallies[0].numbers}
    attempt.engine_name = step
    try:
        train(rank, attempt, Pace(), told.append)
    except NotFinite as error:
        ended = f"NotFinite: {error}"
    segments = [each.segment for each in told if isinstance(each, Validated)]
    return {
        "ended": ended,
        "whole": segments[-1].tally.numbers if segments else None,
        "own": said.tallies[-1].numbers if said.tallies else None,
        "learnt": learnt(attempt.network),
        "engine": attempt.engine.name,
        "moved": _moved(attempt.network, mixed) if name == "experts" else None,
        "skipped": sum(segment.skipped for segment in segments),
    }


def _moved(network: Network, start: Kept) -> list[float]:
    """How far each expert is from where it began."""
    name = f"{MIXTURE}.down"
    moved = network.tensors()[name].detach() - torch.from_numpy(start.weights[name])
    return [float(each.norm()) for each in moved]


def learnt(network: Network) -> str:
    found = sha256()
    for tensor in network.tensors().values():
        found.update(tensor.detach().contiguous().numpy().tobytes())
    return found.hexdigest()


def texts(parallel: Parallel) -> dict[str, Any]:
    return {name: text_trained(name, parallel) for name in TEXTS}


def main() -> None:
    position, directory = int(sys.argv[1]), Path(sys.argv[2])
    device = recording()
    os.environ["GLOO_SOCKET_IFNAME"] = "of_the_site"
    place = layout(("here",) * 3)[position]
    parallel = Ddp(device, place, "none", *meeting_in(directory))
    sockets = psutil.Process().net_connections("tcp")
    listening = [each.laddr.ip for each in sockets if each.status == psutil.CONN_LISTEN]
    data = load(replace(CONFIG.data, training_examples=48), device.torch, 1)
    images = {}
    for name, (step, kind) in IMAGES.items():
        training = replace(CONFIG.training, batch_size=16, format="bf16")
        own = {"graphed": kind} if position else {}
        with mock.patch.dict(KINDS, own):  # type: ignore[arg-type]
            images[name] = images_trained(Rank(device, data, training, parallel), step)
    found = {
        "courses": in_a_group(directory, place, parallel),
        "listening": listening,
        "captures": [os.environ[name] for name in OF_CAPTURES],
        "images": images,
        "text": texts(parallel),
    }
    parallel.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
