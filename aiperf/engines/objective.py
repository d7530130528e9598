"""The training objective of a network, and how its answers are counted, by the kind of its output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import log
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from aiperf.tally import MOST_BITS, UNIT, Classified, Predicted, Tally
from nas.graph import Graph
from nas.head import Classes, Head, NextSymbol


class NotFinite(ArithmeticError):
    """A training loss, or an answer in a validation, is not finite. The steps since the last validation are
    not credited.

    All ranks of a group raise it at the same time.
    """


class Objective(Protocol):
    """Loss and count of correct answers for one kind of output, from a network's outputs and the targets of a
    batch."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss to minimise, as the mean over the batch: shape ()."""

    def nothing(self, device: torch.device) -> Tensor:
        """The sums over no example, to which those of batches are added: shape (numbers,), int64."""

    def judged(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Exact sums over the batch, on its device: shape (numbers,), int64."""

    def tally(self, examples: int, *judged: int) -> Tally:
        """The tally of `examples` examples with these sums. Raises NotFinite if one of their answers was not
        finite."""


@dataclass(frozen=True)
class Classification:
    """Objective for logits (n, classes) and labels (n,): cross-entropy, and the number of correct answers
    (top-1)."""

    label_smoothing: float = 0.0

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs, targets, label_smoothing=self.label_smoothing)

    def nothing(self, device: torch.device) -> Tensor:
        return torch.zeros(1, dtype=torch.int64, device=device)

    def judged(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.argmax(dim=1) == targets).sum().view(1)

    def tally(self, examples: int, *judged: int) -> Tally:
        return Classified(examples, *judged)


@dataclass(frozen=True)
class Prediction:
    """Objective for logits (n, positions, symbols) and the symbols that follow (n, positions): cross-entropy
    at every position, and the length in bits of an ideal code with these probabilities.

    Its sums are the bits in units of `tally.UNIT`, the number of bytes, and the number of bytes whose bits
    are not finite.
    """

    label_smoothing: float = 0.0

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs.flatten(0, 1), targets.flatten(), label_smoothing=self.label_smoothing)

    def nothing(self, device: torch.device) -> Tensor:
        return torch.zeros(3, dtype=torch.int64, device=device)

    def judged(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Sums over the batch. The bits of each byte are rounded and bounded before they are added, so that
        sums are exact in any order."""
        nats = cross_entropy(outputs.float().flatten(0, 1), targets.flatten(), reduction="none")
        finite = nats.isfinite()
        units = (nats * (UNIT / log(2))).round().clamp(0, MOST_BITS * UNIT)
        known = units.where(finite, units.new_zeros(())).long()
        return torch.stack([known.sum(), torch.ones_like(known).sum(), (~finite).sum()])

    def tally(self, examples: int, *judged: int) -> Tally:
        units, of_bytes, unknown = judged
        if unknown:
            raise NotFinite(
                f"{unknown:,} of {of_bytes:,} bytes are predicted with a probability that is not finite; the "
                "learning rate may be too high"
            )
        return Predicted(examples, units, of_bytes)


KINDS: Mapping[type[Head], Callable[[float], Objective]] = {
    Classes: Classification,
    NextSymbol: Prediction,
}


def objective_of(graph: Graph, label_smoothing: float = 0.0) -> Objective:
    """The objective for the kind of output of a graph."""
    return KINDS[type(graph.head)](label_smoothing)
