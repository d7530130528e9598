"""Answers of a network to samples, as the bytes that LoadGen logs, and the tally of a log of them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from aiperf.data.splits import Batch
from aiperf.data.training import Numbers
from aiperf.engines.objective import objective_of
from aiperf.tally import Tally
from nas.modules import Network


class Answering:
    """A network on its device that turns samples in host memory into answers in host memory."""

    def __init__(self, network: Network, device: torch.device) -> None:
        network.eval()
        self.network, self.device = network, device
        self.objective = objective_of(network.graph)

    def __call__(self, batch: Batch) -> Tensor:
        """Answers (n, numbers), int64, in host memory, so the device has finished its work."""
        examples, targets = (part.to(self.device, non_blocking=True) for part in batch)
        return self.objective.answers(self.network(examples), targets).cpu().contiguous()

    def tally(self, logged: Mapping[int, Numbers], targets: Tensor) -> Tally:
        """The tally of answers by sample, with the targets of all samples. Raises NotFinite if an answer is
        not finite."""
        judged = [self.objective.judged_answer(numbers, targets[place]) for place, numbers in logged.items()]
        return self.objective.tally(len(judged), *map(sum, zip(*judged)))
