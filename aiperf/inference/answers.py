"""Answers of a network to samples, as the bytes that LoadGen logs, and the tally of a log of them."""

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
    """How answers are made and counted for one kind of output."""

    of: Callable[[Objective, Tensor, Tensor], Tensor]
    """Computes the answers (n, numbers), int64, from the outputs and targets of a batch."""
    judged: Callable[[Numbers, Tensor], Numbers]
    """Computes the numbers that the objective sums up (`Objective.judged`) from the answer to one sample and
    its target."""


def _class(objective: Objective, outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.argmax(dim=1, keepdim=True)


def _bits(objective: Objective, outputs: Tensor, targets: Tensor) -> Tensor:
    """The answer for each window: its bits in units, its bytes, and its bytes without a finite number of
    bits, as a validation counts them."""
    return torch.stack([objective.judged(*each) for each in zip(outputs.split(1), targets.split(1))])


ANSWERS: Mapping[type[Head], AnswerKind] = {
    Classes: AnswerKind(_class, lambda answer, target: (int(answer[0] == int(target)),)),
    NextSymbol: AnswerKind(_bits, lambda answer, target: answer),
}


class Answering:
    """A network on its device that turns samples in host memory into answers in host memory."""

    def __init__(self, network: Network, device: torch.device) -> None:
        network.eval()
        self.network, self.device = network, device
        self.objective = objective_of(network.graph)
        self.answer = ANSWERS[type(network.graph.head)]

    def __call__(self, batch: Batch) -> Tensor:
        """Answers (n, numbers), int64, in host memory, so the device has finished its work."""
        examples, targets = (part.to(self.device, non_blocking=True) for part in batch)
        return self.answer.of(self.objective, self.network(examples), targets).cpu().contiguous()

    def tally(self, logged: Mapping[int, Numbers], targets: Tensor) -> Tally:
        """The tally of answers by sample, with the targets of all samples. Raises NotFinite if an answer is
        not finite."""
        judged = [self.answer.judged(numbers, targets[place]) for place, numbers in logged.items()]
        return self.objective.tally(len(judged), *map(sum, zip(*judged)))
