"""What a network is trained to make small, and what is counted of its answers: by the kind of its output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from aiperf.tally import Classified, Tally


class Objective(Protocol):
    """Of a batch: what a network puts out, and the targets that belong to it."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean over the batch, (): what training makes small."""

    def nothing(self, device: torch.device) -> Tensor:
        """The judgement of no example, to which those of batches are added: (numbers,), int64."""

    def judged(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Exact sums over the batch, on its device: (numbers,), int64."""

    def tally(self, examples: int, judged: Tensor) -> Tally:
        """Of so many examples. Waits for the device."""


@dataclass(frozen=True)
class Classification:
    """Logits (n, classes) against labels (n,): cross-entropy, and the right answers (top-1)."""

    label_smoothing: float = 0.0

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs, targets, label_smoothing=self.label_smoothing)

    def nothing(self, device: torch.device) -> Tensor:
        return torch.zeros(1, dtype=torch.int64, device=device)

    def judged(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.argmax(dim=1) == targets).sum().view(1)

    def tally(self, examples: int, judged: Tensor) -> Tally:
        return Classified(examples, int(judged))


PLAIN = Classification()
