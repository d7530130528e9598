"""From a tuner's proposal to what a trial is trained with, and back; and which batches fit."""

from __future__ import annotations

from dataclasses import replace
from math import log

import pytest

from aiperf.config import TrainingConfig
from aiperf.proposing.hyper import (
    Losses,
    Memory,
    TrialOutcome,
    configured_point,
    halved,
    hyper_parameters,
    point,
)
from aiperf.wire.trial import HyperParameters
from nas.seeds import residual

TRAINING = TrainingConfig("bf16", 64, 0.4, (1,), validate_every_examples=100, child_learning_rate=0.1)
OWN = configured_point(TRAINING)
OF_TRAINING = (TRAINING.momentum, TRAINING.weight_decay, TRAINING.label_smoothing)
GRAPH = residual()


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("is_child", [False, True])
def test_the_configurations_own_point_gives_the_configurations_own_numbers(
    ranks: int, is_child: bool
) -> None:
    own = HyperParameters(0.1 if is_child else 0.4, 64, *OF_TRAINING)
    assert hyper_parameters(OWN, TRAINING, is_child, ranks) == own


@pytest.mark.parametrize("batch", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("ranks", [1, 3, 8])
def test_there_and_back(batch: float, ranks: int) -> None:
    chosen = replace(OWN, rate=1.7, batch=batch, dropout=0.2)
    found = hyper_parameters(chosen, TRAINING, True, ranks)
    again = point(found, TRAINING, True)
    assert again.rate == 1.7
    assert hyper_parameters(again, TRAINING, True, ranks) == found
    assert found.batch_size % ranks == 0 or batch == 1  # the configured one was checked at the start
    assert found.learning_rate == pytest.approx(0.1 * 1.7 * found.batch_size / 64)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_half_the_batch_leaves_the_point_within_the_space(ranks: int) -> None:
    """Were the learning rate left as it is, each lack of memory in a lineage would double it for its
    children, which take their batch from the tuner."""
    chosen = replace(OWN, rate=4.0, batch=2.0)
    smaller = halved(hyper_parameters(chosen, TRAINING, True, ranks), ranks)
    assert smaller is not None
    assert smaller.batch_size <= 64
    assert point(smaller, TRAINING, True).rate == 4.0


def test_no_rank_is_left_with_one_image() -> None:
    small = replace(TRAINING, batch_size=16)
    assert hyper_parameters(replace(OWN, batch=0.5), small, True, 8).batch_size == 16


def test_what_ran_out_of_memory_bounds_what_comes_after_it() -> None:
    memory = Memory()

    def batch(ranks: int = 1, batch: float = 2.0, device_bytes: int = 10**12) -> float:
        return memory.bounded(replace(OWN, batch=batch), GRAPH, TRAINING, ranks, device_bytes).batch

    memory.ran_out(GRAPH, 129)
    assert batch() == 2.0
    memory.ran_out(GRAPH, 128)
    assert (batch(), batch(ranks=2)) == (1.0, 2.0)  # each of two ranks has half of it
    assert batch(batch=0.5, device_bytes=1) == 0.5


def test_what_trials_of_equal_lengths_usually_gain_is_taken_off() -> None:
    """In halvings of the error: the median of those before, of 2 or of 40 epochs after a parent of 2."""
    losses, parent, first = Losses(1e-9), TrialOutcome(0.4, 2), TrialOutcome(0.8, 2)
    assert losses.completed(first, None) == 0.0
    trials = ((2, 1), (40, 3), (2, 4), (2, 2), (2, 5), (40, 3))
    found = [losses.completed(TrialOutcome(0.4 / 2**gain, epochs), parent) for epochs, gain in trials]
    assert [-loss / log(2) for loss in found] == pytest.approx([1.0, 3.0, 3.0, -0.5, 3.0, 0.0])
