"""How networks are trained on text: its loader and their objective."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import log
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from aiperf.data.splits import Batch, Data
from aiperf.data.texts.generated import load_synthetic_text
from aiperf.data.texts.loading import load_text
from aiperf.data.training import Destination, NotFinite, Numbers, Training
from aiperf.tasks.data import DataConfig
from aiperf.tasks.language.tally import MOST_BITS, UNIT, Predicted
from aiperf.tasks.tally import Tally
from nas.frozen import frozen

SOURCES: Mapping[str, Callable[[DataConfig, Destination], Data]] = {
    "text": lambda config, to: load_text(config, to.device),
    "synthetic-text": lambda config, to: load_synthetic_text(config, to.device, to.seed),
}
"""By `data.name`."""


def _load(config: DataConfig, to: Destination) -> Data:
    return SOURCES[config.name](config, to)


@frozen
class Prediction:
    """Logits (n, positions, symbols) against the symbols that follow (n, positions): cross-entropy at every
    position, and the bits that a code of these probabilities would take.

    Judged are the bits in units, the bytes, and those of them whose bits are not finite.
    """

    label_smoothing: float = 0.0
    judges_probabilities: ClassVar[bool] = True

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs.flatten(0, 1), targets.flatten(), label_smoothing=self.label_smoothing)

    def nothing(self, device: torch.device) -> Tensor:
        return torch.zeros(3, dtype=torch.int64, device=device)

    def judged(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The sums of `answers`."""
        return self.answers(outputs, targets).sum(0)

    def tally(self, examples: int, *judged: int) -> Tally:
        """Raises NotFinite for bytes without a finite probability: their bits are not known, so no sum
        would be right."""
        units, of_bytes, unknown = judged
        if unknown:
            raise NotFinite(
                f"{unknown:,} of {of_bytes:,} bytes are predicted with a probability that is not finite; "
                "lower training.learning_rate"
            )
        return Predicted(examples, units, of_bytes)

    def answers(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Bits of each window in units, its bytes, and its bytes without finite ones. Each byte by itself
        is rounded and bounded, so that sums are exact in every order."""
        nats = cross_entropy(outputs.float().flatten(0, 1), targets.flatten(), reduction="none")
        finite = nats.isfinite()
        units = (nats * (UNIT / log(2))).round().clamp(0, MOST_BITS * UNIT)
        known = units.where(finite, units.new_zeros(())).long()
        each = torch.stack([known, torch.ones_like(known), (~finite).long()], dim=1)
        return each.view(*targets.shape, -1).sum(1)

    def judged_answer(self, answer: Numbers, target: Tensor) -> Numbers:
        """The logged answer itself, which `answers` made in the form of `judged`."""
        return answer

    def random(self, shape: tuple[int, ...], answers: int, generator: torch.Generator) -> Batch:
        """Symbols, and those that follow."""
        windows, size = shape
        symbols = torch.randint(answers, (windows, size + 1), generator=generator)
        return symbols[:, :-1], symbols[:, 1:]


TRAINING = Training(_load, Prediction)
