"""A trial: one candidate that is trained, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from aiperf.tally import Tally
from aiperf.wording import spoken
from nas.morphisms import Morphism

BLOCK_SECONDS = 2.0
"""A block of steps is reported about so often, by few groups."""


class State(Enum):
    """Where a trial stands. STOPPED is by the deadline or a limit: scored, but not told to the search."""

    WAITING = "WAITING"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    LOST = "LOST"

    @property
    def ended(self) -> bool:
        return self not in (State.WAITING, State.RUNNING)


@dataclass(frozen=True)
class HyperParameters:
    """What is chosen for the training of one trial."""

    learning_rate: float
    batch_size: int
    """Examples a step, over all ranks of the group."""
    momentum: float = 0.9
    weight_decay: float = 0.0
    """Not on batch norm and biases."""
    label_smoothing: float = 0.0
    dropout: float = 0.0
    """Of what the last layer with weights reads. Not part of the architecture, and not counted."""

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size is {self.batch_size}; a step needs an example")


@dataclass(frozen=True)
class Trial:
    """What the search decided: an architecture by its parent and morphisms, and how it is trained.

    A trial with a parent starts from the parent's weights; without morphisms it goes on with the parent.
    One without a parent starts from the seed and its initial weights; trial 0 is the seed itself.
    """

    number: int
    parent: int | None
    morphisms: tuple[Morphism, ...]
    hyper: HyperParameters
    round: int
    """1 + number // groups."""
    epochs: int
    """Most passes over the training examples (early stopping may end sooner)."""
    seed: int
    """Of the order of the examples, the augmentation and dropout."""


def origin(trial: Trial) -> str:
    """Where an architecture comes from: "of 4: widen trunk, skip"; "4, trained on" where it is the same."""
    if not trial.morphisms:
        return "the seed" if trial.parent is None else f"{trial.parent}, trained on"
    parent = "the seed" if trial.parent is None else str(trial.parent)
    return f"of {parent}: " + ", ".join(spoken(type(morphism).__name__) for morphism in trial.morphisms)


@dataclass(frozen=True, slots=True)  # a long run has millions of them
class StepBlock:
    """Finished steps of one attempt inside a segment: what a group reports every few seconds."""

    trial: int
    attempt: int
    segment: int
    steps: int
    examples: int
    seconds: float
    loss: float | None
    """Mean over the block; None when it was not finite."""


@dataclass(frozen=True, slots=True)  # a long run has a million of them
class Segment:
    """The steps of one attempt between two validations, with the validation that closes it.

    Seconds are on the group's own clock and measured with the device synchronised at both ends.
    """

    trial: int
    attempt: int
    index: int
    steps: int
    train_examples: int
    train_seconds: float
    tally: Tally
    """Of the validation."""
    validate_seconds: float
    skipped: int = 0
    """Steps that the optimizer did not make (fp16 gradients overflowed); a segment with any earns nothing."""

    @property
    def of(self) -> int:
        """Validated examples."""
        return self.tally.of

    @property
    def error(self) -> float:
        return self.tally.error

    @property
    def unbounded(self) -> float:
        """By which the best validation is chosen."""
        return self.tally.unbounded
