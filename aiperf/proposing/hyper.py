"""Hyper-parameters of trials from a tuner's proposals and back, which batches fit, and the tuner's losses."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from dataclasses import replace
from math import log

from aiperf.config import LEAST_BATCH, TrainingConfig
from aiperf.proposing.memory_model import training_bytes
from aiperf.wire.trial import HyperParameters
from nas.frozen import frozen
from nas.graph import Graph
from nas.tuning import Point

# Fraction of a device's memory that a trial may take by the model; the rest is for workspaces of libraries,
# which the model leaves out.
SHARE = 0.9
DIGITS = 6  # significant digits, as many as a proposal has


class Memory:
    """Which batches fit into the memory of the devices, by the model and by what ran out of memory before."""

    def __init__(self) -> None:
        self._overflow = float("inf")

    def ran_out(self, graph: Graph, examples: int) -> None:
        """A trial ran out of memory on a device that had `examples` per step."""
        self._overflow = min(self._overflow, graph.num_activations * examples)

    def bounded(
        self,
        chosen: Point,
        graph: Graph,
        training: TrainingConfig,
        ranks: int,
        device_bytes: float,
        kind: str = "",
    ) -> Point:
        """`chosen`, with the configured batch unless a larger one is known to fit into devices of a kind."""
        if chosen.batch <= 1:
            return chosen
        examples = int(-(-chosen.batch * training.batch_size // ranks))
        needed = training_bytes(graph, training, examples, ranks, kind)
        fits = needed is not None and needed <= SHARE * device_bytes
        if fits and graph.num_activations * examples < self._overflow:
            return chosen
        return replace(chosen, batch=1.0)


def configured_point(training: TrainingConfig) -> Point:
    """The hyper-parameters of the configuration, with which the seed is trained."""
    return Point(
        rate=1.0,
        batch=1.0,
        weight_decay=training.weight_decay,
        label_smoothing=training.label_smoothing,
        dropout=training.dropout,
        momentum=training.momentum,
    )


def hyper_parameters(chosen: Point, training: TrainingConfig, is_child: bool, ranks: int) -> HyperParameters:
    """Hyper-parameters of a trial for a group of `ranks`, which share the batch evenly. The learning rate is
    in proportion to the batch."""
    examples = max(LEAST_BATCH, round(chosen.batch * training.batch_size / ranks))
    batch_size = training.batch_size if chosen.batch == 1 else examples * ranks
    share = batch_size / training.batch_size
    return HyperParameters(
        learning_rate=_base(training, is_child) * chosen.rate * share,
        batch_size=batch_size,
        momentum=chosen.momentum,
        weight_decay=chosen.weight_decay,
        label_smoothing=chosen.label_smoothing,
        dropout=chosen.dropout,
    )


def point(hyper: HyperParameters, training: TrainingConfig, is_child: bool) -> Point:
    """The inverse of `hyper_parameters`: the point from which these hyper-parameters follow."""
    share = hyper.batch_size / training.batch_size
    found = Point(
        rate=hyper.learning_rate / _base(training, is_child) / share,
        batch=share,
        weight_decay=hyper.weight_decay,
        label_smoothing=hyper.label_smoothing,
        dropout=hyper.dropout,
        momentum=hyper.momentum,
    )
    return replace(found, rate=float(f"{found.rate:.{DIGITS}g}"), batch=float(f"{share:.{DIGITS}g}"))


def halved(hyper: HyperParameters, ranks: int) -> HyperParameters | None:
    """Hyper-parameters with half the batch and a learning rate in proportion; None if a rank would have too
    few examples."""
    half = hyper.batch_size // 2 // ranks * ranks
    if half < LEAST_BATCH * ranks:
        return None
    return replace(hyper, batch_size=half, learning_rate=hyper.learning_rate * half / hyper.batch_size)


def shared_evenly(hyper: HyperParameters, ranks: int) -> HyperParameters:
    """Hyper-parameters with the next larger batch that `ranks` share evenly, for a run that is resumed with
    groups of another size."""
    return replace(hyper, batch_size=-(-hyper.batch_size // ranks) * ranks)


@frozen
class TrialOutcome:
    """Result of a trial for the tuner."""

    error: float
    epochs: int


class Losses:
    """Losses that a tuner receives for the trials of a run, in the order in which they ended. They are scaled
    so that early and late trials, and long and short ones, can be compared."""

    def __init__(self, least: float) -> None:
        self._least = least  # smallest error that the validation examples can show
        self._first: float | None = None  # error to complete: the seed's, if nothing went wrong
        self._changes: defaultdict[tuple[int, int], list[float]] = defaultdict(list)

    def completed(self, trial: TrialOutcome, parent: TrialOutcome | None) -> float:
        """The loss of a completed trial, which is also recorded for the comparison of later ones."""
        self._first = trial.error if self._first is None else self._first
        loss = self.of(trial, parent)
        insort(self._like(trial, parent), self._change(trial, parent))
        return loss

    def of(self, trial: TrialOutcome, parent: TrialOutcome | None) -> float:
        """How much less the trial improved on its parent than the median trial of its length, in the
        logarithm of the error."""
        before = self._like(trial, parent)
        usual = (before[(len(before) - 1) // 2] + before[len(before) // 2]) / 2 if before else 0.0
        return self._change(trial, parent) - usual

    def _change(self, trial: TrialOutcome, parent: TrialOutcome | None) -> float:
        """Logarithm of the error relative to the parent's, or, without a parent, to that of the first
        completed trial. It is relative because trials that carry weights get better with time whatever their
        hyper-parameters are. Before any trial has completed, a failure has the largest possible value."""
        reference = (parent.error if parent else self._first) or 0.0
        return log(max(trial.error, self._least) / max(reference, self._least))

    def _like(self, trial: TrialOutcome, parent: TrialOutcome | None) -> list[float]:
        """The changes, in rising order, of the trials that completed earlier with the same number of epochs
        and with parents of the same number of epochs as its own, because a long trial after a short one
        improves more in any case."""
        return self._changes[parent.epochs if parent else 0, trial.epochs]


def _base(training: TrainingConfig, is_child: bool) -> float:
    return (is_child and training.child_learning_rate) or training.learning_rate
