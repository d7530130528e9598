"""What a network answers to a sample, as the bytes that LoadGen logs, and what a log of them adds up to."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from aiperf.data.split import Batch
from aiperf.data.training import Numbers
from aiperf.engines.objective import objective_of
from aiperf.tally import Tally
from nas.modules import Network


class Answering:
    """A network on its device, from samples in the host's memory to answers there."""

    def __init__(self, network: Network, device: torch.device) -> None:
        network.eval()
        self.network, self.device = network, device
        self.objective = objective_of(network.graph)

    def __call__(self, batch: Batch) -> Tensor:
        """(n, numbers), int64, in the host's memory: nothing is left to be done by the device."""
        examples, targets = (part.to(self.device, non_blocking=True) for part in batch)
        return self.objective.answers(self.network(examples), targets).cpu().contiguous()

    def tally(self, logged: Mapping[int, Numbers], targets: Tensor) -> Tally:
        """Of the answers by sample, with the targets of all of them. Raises NotFinite where one was not
        finite."""
        judged = [self.objective.judged_answer(numbers, targets[place]) for place, numbers in logged.items()]
        return self.objective.tally(len(judged), *map(sum, zip(*judged)))
