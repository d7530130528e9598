"""What a network answers to a sample, as the bytes that LoadGen logs, and what a log of them adds up to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from aiperf.data.split import Batch
from aiperf.engines.objective import Objective, objective_of
from aiperf.tally import Tally
from nas.head import Classes, Head, NextSymbol
from nas.modules import Network

Numbers = tuple[int, ...]


@dataclass(frozen=True)
class AnswerKind:
    """Of a kind of output."""

    of: Callable[[Objective, Tensor, Tensor], Tensor]
    """From outputs and targets of a batch: (n, numbers), int64."""
    judged: Callable[[Numbers, Tensor], Numbers]
    """What an objective counts, from the answer to one sample and its target."""


def _class(objective: Objective, outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.argmax(dim=1, keepdim=True)


def _bits(objective: Objective, outputs: Tensor, targets: Tensor) -> Tensor:
    """Each window by itself, as a validation counts it: bits in units, bytes, bytes without a finite one."""
    return torch.stack([objective.judged(*each) for each in zip(outputs.split(1), targets.split(1))])


ANSWERS: Mapping[type[Head], AnswerKind] = {
    Classes: AnswerKind(_class, lambda answer, target: (int(answer[0] == int(target)),)),
    NextSymbol: AnswerKind(_bits, lambda answer, target: answer),
}


class Answering:
    """A network on its device, from samples in the host's memory to answers there."""

    def __init__(self, network: Network, device: torch.device) -> None:
        network.eval()
        self.network, self.device = network, device
        self.objective = objective_of(network.graph)
        self.answer = ANSWERS[type(network.graph.head)]

    def __call__(self, batch: Batch) -> Tensor:
        """(n, numbers), int64, in the host's memory: nothing is left to be done by the device."""
        examples, targets = (part.to(self.device, non_blocking=True) for part in batch)
        return self.answer.of(self.objective, self.network(examples), targets).cpu().contiguous()

    def tally(self, logged: Mapping[int, Numbers], targets: Tensor) -> Tally:
        """Of the answers by sample, with the targets of all of them. Raises NotFinite where one was not
        finite."""
        judged = [self.answer.judged(numbers, targets[place]) for place, numbers in logged.items()]
        return self.objective.tally(len(judged), *map(sum, zip(*judged)))
