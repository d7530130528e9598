"""The hyper-parameters that are tuned, and between which limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nas.frozen import frozen


@frozen
class Point:
    """Hyper-parameters, free of the size of the problem: one point serves seed and child, each device
    and each number of ranks.
    """

    rate: float
    """Multiple of the configured learning rate, for the configured batch: the rate grows with the batch
    (Goyal et al., "Accurate, Large Minibatch SGD", arXiv:1706.02677)."""
    batch: float
    """Multiple of the configured batch."""
    weight_decay: float
    label_smoothing: float
    dropout: float
    momentum: float


@frozen
class Dimension:
    """The range of one hyper-parameter: any number from `low` to `high`, or one of the `choices`."""

    low: float
    high: float
    log: bool = False
    choices: tuple[float, ...] = ()

    def nearest(self, value: float) -> float:
        """What a tuner receives for a value that it would not propose itself."""
        if self.choices:
            return min(self.choices, key=lambda choice: abs(choice - value))
        return min(max(value, self.low), self.high)

    def with_value(self, value: float) -> Dimension:
        """The range, widened to contain this value, so that a tuner receives the value itself."""
        return replace(self, low=min(self.low, value), high=max(self.high, value))


Space = Mapping[str, Dimension]
"""Ranges by field of `Point`. A field that is missing is not tuned: each child has its parent's value."""

MULTIPLES = (0.25, 4.0)
"""Smallest and largest multiple of a configured value."""

SPACE: Space = {
    "rate": Dimension(*MULTIPLES, log=True),
    "batch": Dimension(0.5, 2.0, choices=(0.5, 1.0, 2.0)),
    "weight_decay": Dimension(1e-5, 5e-3, log=True),
    "label_smoothing": Dimension(0.0, 0.2),
    "dropout": Dimension(0.0, 0.4),
    "momentum": Dimension(0.8, 0.98),
}
"""The space of images, which are trained by SGD."""

TEXT_DROPOUT = Dimension(0.0, 0.4)
TEXT_MOMENTUM = Dimension(0.8, 0.95)
"""AdamW's β₁. Below 0.78 the first step of a partly new tensor is longer than the rate (docs/growing.md).
Above √β₂, 0.975 here, Adam need not converge (Zhang et al., "Adam Can Converge Without Any Modification on
Update Rules", arXiv:2208.09632)."""


def text_space(configured: Point) -> Space:
    """The space of language, around the configuration. Label smoothing is not tuned, because the
    probabilities themselves are scored; nor is a weight decay of 0, which has no multiples."""
    decay = configured.weight_decay
    low, high = (decay * multiple for multiple in MULTIPLES)
    return {
        "rate": SPACE["rate"],
        "batch": SPACE["batch"],
        **({"weight_decay": Dimension(low, high, log=True)} if decay else {}),
        "dropout": TEXT_DROPOUT.with_value(configured.dropout),
        "momentum": TEXT_MOMENTUM.with_value(configured.momentum),
    }
