"""The hyper-parameters that are tuned, and between which limits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    """Hyper-parameters, free of the size of the problem: one point serves seed and child, each device
    and each number of ranks.
    """

    rate: float
    """Of the configured learning rate, for the configured batch: it grows with the batch (Goyal et al.,
    "Accurate, Large Minibatch SGD", arXiv:1706.02677)."""
    batch: float
    """Of the configured batch."""
    weight_decay: float
    label_smoothing: float
    dropout: float
    momentum: float


@dataclass(frozen=True)
class Dimension:
    """One of them: any number from `low` to `high`, or one of the `choices`."""

    low: float
    high: float
    log: bool = False
    choices: tuple[float, ...] = ()

    def nearest(self, value: float) -> float:
        """What a tuner receives for a value that it would not propose itself."""
        if self.choices:
            return min(self.choices, key=lambda choice: abs(choice - value))
        return min(max(value, self.low), self.high)


SPACE = {
    "rate": Dimension(0.25, 4.0, log=True),
    "batch": Dimension(0.5, 2.0, choices=(0.5, 1.0, 2.0)),
    "weight_decay": Dimension(1e-5, 5e-3, log=True),
    "label_smoothing": Dimension(0.0, 0.2),
    "dropout": Dimension(0.0, 0.4),
    "momentum": Dimension(0.8, 0.98),
}
"""By the name of the field of `Point`."""
