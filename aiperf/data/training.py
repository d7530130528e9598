"""How networks are trained on the examples of a task: how these are read, and which objective is minimised.

A task keeps this in a file of its own, which imports torch: `Task.training` imports it when it is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from aiperf.data.splits import Batch, Data
from aiperf.errors import ConfigError
from aiperf.tasks.data import DataConfig
from aiperf.tasks.tally import Tally
from aiperf.tasks.task import Task
from nas.frozen import frozen

Numbers = tuple[int, ...]
"""Whole numbers that are counted of an answer, as `Objective.judged` returns them."""


class Destination(NamedTuple):
    """Where examples are put, and what else their reading depends on."""

    device: torch.device
    seed: int
    """The random seed of generated examples; real ones are split alike in every run."""
    local_ranks: int
    """Ranks on this host, which share its cores for decoding, unless each is bound to cores of its own."""


class NotFinite(ArithmeticError):
    """A loss, or an answer in a validation, that is not a finite number: the steps since the last validation
    are void.

    Raised by all ranks of a group at once.
    """


class Objective(Protocol):
    """The loss that training minimises and the numbers that an evaluation counts, from the output of a
    network for a batch and the targets of the batch."""

    @property
    def judges_probabilities(self) -> bool:
        """Whether `judged` counts how probable an answer was. Then the last product of an evaluation is not
        narrowed, because such a probability is a difference of logits."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean over the batch, (), which training minimises."""

    def nothing(self, device: torch.device) -> Tensor:
        """The judgement of no example, to which those of batches are added: (numbers,), int64."""

    def judged(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Exact sums over the batch, on its device: (numbers,), int64."""

    def tally(self, examples: int, *judged: int) -> Tally:
        """Makes the tally of this many examples from the sums. Raises NotFinite if an answer was not
        finite."""

    def answers(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The answer to each example as a test of inference logs it: (n, numbers), int64."""

    def judged_answer(self, answer: Numbers, target: Tensor) -> Numbers:
        """What `judged` counts of one example, from its answer and its target."""

    def random(self, shape: tuple[int, ...], answers: int, generator: torch.Generator) -> Batch:
        """Random examples (n, …) of this shape and targets below `answers`, in the host's memory, to time
        steps on."""


@frozen
class Training:
    """What only training needs of a task."""

    load: Callable[[DataConfig, Destination], Data]
    """Reads and checks the whole set. Raises DataError."""
    objective: Callable[[float], Objective]
    """The objective with this label smoothing."""


def training_of(task: Task) -> Training:
    """Imports what training needs of a task. Raises ConfigError if the package of an installed task has
    none."""
    found = task.training()
    if not isinstance(found, Training):
        raise ConfigError(
            f"the task {task.name}: `training` returns {found!r:.80}, which is not an "
            "aiperf.data.training.Training; correct its package"
        )
    return found
