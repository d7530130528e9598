"""A trial, the training of one candidate: what the search decided, and what a group reports of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from aiperf.tasks.tally import Tally
from aiperf.wording import spoken
from nas.morphisms import Morphism

BLOCK_SECONDS = 2.0
"""Target length of a block of steps in seconds, which is also the interval between two reports of a group.
With many groups blocks are longer (`aiperf.proposing.pace.block_seconds`)."""


class State(Enum):
    """State of a trial. A STOPPED trial was ended by the deadline or a limit: its work is credited, but its
    result does not reach the search."""

    WAITING = "WAITING"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    LOST = "LOST"

    @property
    def ended(self) -> bool:
        return self not in (State.WAITING, State.RUNNING)


@dataclass(frozen=True, slots=True)
class HyperParameters:
    """Hyper-parameters of one trial."""

    learning_rate: float
    """Peak learning rate of the schedule."""
    batch_size: int
    """Examples per step, over all ranks of the group."""
    momentum: float = 0.9
    weight_decay: float = 0.0
    """Weight decay, applied to all weights except batch norm and biases."""
    label_smoothing: float = 0.0
    dropout: float = 0.0
    """Dropout rate on the input of the last layer with weights. It is not part of the architecture, and its
    operations are not counted."""

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size is {self.batch_size}; a step needs an example")


@dataclass(frozen=True, slots=True)
class Trial:
    """The decision of the search: an architecture, given by its parent and morphisms, and its training.

    A trial with a parent starts from the parent's weights; without morphisms it continues to train the
    parent's network. A trial without a parent starts from the seed and its initial weights; trial 0 is the
    seed itself.
    """

    number: int
    """Number of the trial in order of dispatch, from 0."""
    parent: int | None
    morphisms: tuple[Morphism, ...]
    hyper: HyperParameters
    round: int
    """Round of the epoch schedule: 1 + number // groups. Where networks grow, it never falls, even if a later
    leg has more groups."""
    epochs: int
    """Maximum number of passes over the training examples; early stopping may end the trial sooner."""
    seed: int
    """Random seed for the order of the examples, the augmentation and dropout."""


def origin(trial: Trial) -> str:
    """The origin of an architecture in words: "child of 4: widen trunk, skip", or "4, trained on" if it is
    the parent's own."""
    if not trial.morphisms:
        return "the seed" if trial.parent is None else f"{trial.parent}, trained on"
    parent = "the seed" if trial.parent is None else str(trial.parent)
    return f"child of {parent}: " + ", ".join(spoken(type(morphism).__name__) for morphism in trial.morphisms)


@dataclass(frozen=True, slots=True)  # a long run has millions of them
class StepBlock:
    """Some finished training steps of one segment. A group reports a block every few seconds, as a bound on
    what is lost with it."""

    trial: int
    attempt: int
    segment: int
    """Index of the segment within the attempt, from 0."""
    steps: int
    examples: int
    """Training examples, over all ranks of the group."""
    seconds: float
    """Duration in seconds, with the device synchronised at both ends."""
    loss: float | None
    """Mean training loss over the block and the ranks; None if it was not finite."""


@dataclass(frozen=True, slots=True)  # a long run has a million of them
class Segment:
    """The steps of one attempt between two validations, with the validation that closes it.

    Credit is given by segment: work without a validation that closes it earns nothing. Seconds are on the
    group's own clock, measured with the device synchronised at both ends.
    """

    trial: int
    attempt: int
    index: int
    """Index within the attempt, from 0."""
    steps: int
    train_examples: int
    """Training examples, over all ranks of the group."""
    train_seconds: float
    tally: Tally
    """Result of the validation."""
    validate_seconds: float
    skipped: int = 0
    """Steps that the optimizer left out because fp16 gradients overflowed; a segment with any is not
    credited."""

    @property
    def of(self) -> int:
        """Number of validation examples."""
        return self.tally.of

    @property
    def error(self) -> float:
        """Validation error, from 0 to 1."""
        return self.tally.error

    @property
    def unbounded(self) -> float:
        """Validation error without the bound at 1 (`Tally.unbounded`), by which the best one is chosen."""
        return self.tally.unbounded
