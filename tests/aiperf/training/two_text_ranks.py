"""Trials of text in a group of two real ranks, joined by DDP.

    python -m tests.aiperf.training.two_text_ranks 0|1 DIRECTORY

Each rank prints JSON: by case how it ended, the tally of its group and its own, and the SHA-256 of what it
has learnt.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from aiperf.engines.graphed import WARM_UP_WRAPPED
from aiperf.engines.objective import NotFinite
from aiperf.parallel.ddp import Ddp
from aiperf.parallel.parallel import Parallel, Solo
from aiperf.proposing.pace import Pace
from aiperf.tally import Tally
from aiperf.training.built_trial import build
from aiperf.training.evaluation import evaluate
from aiperf.training.kept_network import Kept
from aiperf.training.rank_log import NoLog
from aiperf.training.train import train
from aiperf.wire.layout import layout
from aiperf.wire.messages import Validated
from nas.modules import Network
from nas.morphisms.text import Upcycle
from tests.aiperf.engines.recording import recording
from tests.aiperf.training.text_trials import START, UNSEEN, infinite, rank_of, text_trial
from tests.aiperf.training.two_ranks import meeting_in

SGD_RATE = 0.3
MIXTURE, STARVED = "block1.mlp.out", 3
"""Experts, of which the second rank chooses this one for no byte."""
EPOCHS = 2  # of 10 steps and a half: more than DDP needs before its steps are captured


@dataclass
class Said(NoLog):
    """A log that is only remembered."""

    tallies: list[Tally] = field(default_factory=list)

    def answers(self, trial: int, attempt: int, segment: int, tally: Tally) -> None:
        self.tallies.append(tally)


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "untrained": ("", {}),
    "not finite": ("eager", {"validation": UNSEEN}),
    "sgd": ("eager", {"optimizer": "sgd"}),
    "adamw": ("eager", {}),
    "muon": ("eager", {"optimizer": "muon"}),
    "captured": ("graphed", {}),
    "clipped": ("eager", {"optimizer": "sgd", "gradient_clip": 0.1}),
    "experts": ("eager", {"gradient_clip": 0.1}),
    "clipped in fp16": ("graphed", {"optimizer": "sgd", "gradient_clip": 0.1, "format": "fp16"}),
}
"""By name the engine, or nothing where no step is made, and what is unlike `text_trials.TRAINING`. SGD shows
a clip: the steps of AdamW hardly depend on how long gradients are."""


def results(parallel: Parallel) -> dict[str, Any]:
    return {name: _result(name, parallel) for name in CASES}


def _result(name: str, parallel: Parallel) -> dict[str, Any]:
    step, others = CASES[name]
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
    attempt.wanted = step
    try:
        train(rank, attempt, Pace(lambda: False), told.append)
    except NotFinite as error:
        ended = f"NotFinite: {error}"
    learnt = sha256()
    for tensor in attempt.network.tensors().values():
        learnt.update(tensor.detach().contiguous().numpy().tobytes())
    segments = [each.segment for each in told if isinstance(each, Validated)]
    return {
        "ended": ended,
        "whole": segments[-1].tally.numbers if segments else None,
        "own": said.tallies[-1].numbers if said.tallies else None,
        "learnt": learnt.hexdigest(),
        "engine": attempt.engine.name,
        "moved": _moved(attempt.network, mixed) if name == "experts" else None,
        "skipped": sum(segment.skipped for segment in segments),
    }


def _moved(network: Network, start: Kept) -> list[float]:
    """How far each expert is from where it began."""
    name = f"{MIXTURE}.down"
    moved = network.tensors()[name].detach() - torch.from_numpy(start.weights[name])
    return [float(each.norm()) for each in moved]


def main() -> None:
    position, directory = int(sys.argv[1]), Path(sys.argv[2])
    say, hear = meeting_in(directory)
    parallel = Ddp(recording(), layout(("here",) * 3)[position], "none", say, hear)
    found = results(parallel)
    parallel.close()
    print(json.dumps(found))


def alone() -> dict[str, Any]:
    return results(Solo())


if __name__ == "__main__":
    main()
