"""Trials of a group of two real ranks, joined by DDP, by engines that fail on the second one only.

    python -m tests.aiperf.training.two_ranks 0|1 DIRECTORY

Each rank prints JSON: by case why it fell back, and the SHA-256 of what it has learnt.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor

from aiperf.data import load
from aiperf.engines.graphed import WARM_UP_WRAPPED, Graphed
from aiperf.engines.made import KINDS
from aiperf.parallel.ddp import Ddp
from aiperf.proposing.pace import Pace
from aiperf.training.built_trial import Rank, build
from aiperf.training.kept_network import Kept
from aiperf.training.train import train
from aiperf.wire.layout import layout
from aiperf.wire.messages import Fallback, FromGroup, Join, Meeting
from nas.weights import initial
from tests.aiperf.engines.recording import recording
from tests.aiperf.training.test_worker import CONFIG, SEED, trial


class NoCapture(Graphed):
    def prepare(self, examples: Tensor, labels: Tensor) -> None:
        super().prepare(examples, labels)
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


CASES: dict[str, tuple[str, str, type[Graphed]]] = {
    "eager": ("eager", "fp32", Graphed),
    "eager in bf16": ("eager", "bf16", Graphed),
    "captured": ("graphed", "fp32", Graphed),
    "captured in bf16": ("graphed", "bf16", Graphed),
    "not captured": ("graphed", "bf16", NoCapture),
    "another loss": ("graphed", "fp32", OtherLoss),
    "other gradients": ("graphed", "bf16", OtherGradients),
}
"""By name the engine, the format, and what makes the captured steps of the second rank."""


def meeting_in(directory: Path) -> tuple[Callable[[Meeting], None], Callable[[], Join]]:
    """How the leader says where to meet, and how all hear it: by a file."""
    meeting = directory / "meeting.json"

    def say(own: Meeting) -> None:
        written = directory / "written"
        written.write_text(json.dumps([own.host, own.port]))
        written.replace(meeting)

    def hear() -> Join:
        while not meeting.exists():
            time.sleep(0.01)
        return Join(*json.loads(meeting.read_text()))

    return say, hear


def main() -> None:
    position, directory = int(sys.argv[1]), Path(sys.argv[2])
    say, hear = meeting_in(directory)
    device = recording()
    parallel = Ddp(device, layout(("here",) * 3)[position], "none", say, hear)
    data = load(replace(CONFIG.data, training_examples=48), device.torch, 1)
    found = {}
    for name, (step, format, kind) in CASES.items():
        training = replace(CONFIG.training, batch_size=16, format=format)
        own = {"graphed": kind} if position else {}
        with mock.patch.dict(KINDS, own):  # type: ignore[arg-type]
            found[name] = _trained(Rank(device, data, training, parallel), step)
    parallel.close()
    print(json.dumps(found))


def _trained(rank: Rank, step: str) -> tuple[list[str], str]:
    torch.manual_seed(1)
    told = list[FromGroup]()
    long = replace(trial(0, batch_size=16, momentum=0.9), epochs=5)
    attempt = build(rank, long, 1, Kept(SEED, initial(SEED, 1), {}))
    assert attempt.plan.steps > WARM_UP_WRAPPED + 1
    attempt.wanted = step
    train(rank, attempt, Pace(lambda: False), told.append)
    learnt = sha256()
    for tensor in attempt.network.tensors().values():
        learnt.update(tensor.detach().contiguous().numpy().tobytes())
    return [each.reason for each in told if isinstance(each, Fallback)], learnt.hexdigest()


if __name__ == "__main__":
    main()
