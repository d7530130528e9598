"""What tensors are filled with before training, as data: `nas.weights` draws the numbers."""

from __future__ import annotations

from dataclasses import dataclass

TEXT_DEVIATION = 0.02
"""The standard deviation of every matrix of a text network at the start, as in the code of Radford et al.,
"Language Models are Unsupervised Multitask Learners", 2019. A layer does not know how deep its network is, so
those that write into the trunk are not made smaller by the square root of that."""


@dataclass(frozen=True)
class Constant:
    """One value everywhere."""

    value: float


@dataclass(frozen=True)
class Normal:
    """Random numbers of a normal distribution around 0 with this standard deviation."""

    deviation: float


@dataclass(frozen=True)
class Uniform:
    """Random numbers, evenly spread from −bound to bound."""

    bound: float


Start = Constant | Normal | Uniform


def of_text(tensor: str) -> Start:
    """Matrices of text networks are drawn; biases and the balance of experts begin at 0."""
    return Constant(0) if tensor in ("bias", "balance") else Normal(TEXT_DEVIATION)
