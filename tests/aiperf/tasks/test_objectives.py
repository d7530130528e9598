"""What a network is asked, by its head; and the exact sums of what it answers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aiperf.data.training import NotFinite
from aiperf.engines.objective import objective_of
from aiperf.tasks.images.tally import Classified
from aiperf.tasks.images.training import Classification
from aiperf.tasks.language.tally import MOST_BITS, UNIT, Predicted
from aiperf.tasks.language.training import Prediction
from nas.seeds import residual
from nas.text_seeds import gpt_4x128

WINDOWS, POSITIONS, SYMBOLS = 5, 7, 256


def answers(scale: float = 3.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    logits = scale * torch.randn(WINDOWS, POSITIONS, SYMBOLS, generator=generator)
    return logits, torch.randint(SYMBOLS, (WINDOWS, POSITIONS), generator=generator)


def bits_by_hand(logits: torch.Tensor, targets: torch.Tensor) -> np.ndarray:
    """-log2 of softmax, in fp64."""
    z = logits.double().numpy()
    right = np.take_along_axis(z, targets.numpy()[..., None], axis=2)[..., 0]
    found: np.ndarray = np.log(np.exp(z - z.max(axis=2, keepdims=True)).sum(axis=2)) + z.max(axis=2) - right
    return found / np.log(2)


def test_the_head_of_a_graph_says_what_is_asked() -> None:
    assert objective_of(residual(), 0.1) == Classification(0.1)
    assert objective_of(gpt_4x128(), 0.1) == Prediction(0.1)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_the_mean_over_all_positions_and_every_symbol_has_its_share(smoothing: float) -> None:
    """Label smoothing: Szegedy et al., CVPR 2016."""
    logits, targets = answers()
    every = np.mean([bits_by_hand(logits, torch.full_like(targets, k)).mean() for k in range(SYMBOLS)])
    bits = (1 - smoothing) * bits_by_hand(logits, targets).mean() + smoothing * every
    assert float(Prediction(smoothing).loss(logits, targets)) == pytest.approx(bits * np.log(2), rel=1e-6)


def test_the_bits_of_each_byte_are_rounded_once() -> None:
    logits, targets = answers()
    expected = (bits_by_hand(logits, targets) * UNIT).ravel()
    for right, answer, target in zip(expected, logits.view(-1, 1, 1, SYMBOLS), targets.view(-1, 1, 1)):
        units, *counts = Prediction().judged(answer, target).tolist()
        # fp32 logits and their softmax have 24 bits; a unit is the 2^-20th part of a bit.
        assert abs(units - right) <= 0.5 + 2.0**-22 * right + 1
        assert counts == [1, 0]


def test_sums_are_the_same_in_every_order_and_cut() -> None:
    logits, targets = answers()
    whole = Prediction().judged(logits, targets)
    parts = Prediction().nothing(logits.device)
    for window in reversed(range(WINDOWS)):
        parts += Prediction().judged(logits[[window]], targets[[window]])
    assert whole.dtype == torch.int64
    assert whole.tolist() == parts.tolist()
    assert whole.tolist()[1] == WINDOWS * POSITIONS


def test_who_knows_nothing_needs_eight_bits() -> None:
    found = Prediction().judged(torch.zeros(1, 3, 256), torch.zeros(1, 3, dtype=torch.int64))
    assert found.tolist() == [3 * 8 * UNIT, 3, 0]


@pytest.mark.parametrize("format", [torch.float32, torch.bfloat16])
def test_what_is_impossible_is_bounded(format: torch.dtype) -> None:
    logits = torch.zeros(1, 1, 256, dtype=format)
    logits[0, 0, 3] = -1000.0
    found = Prediction().judged(logits, torch.tensor([[3]]))
    assert found.tolist() == [MOST_BITS * UNIT, 1, 0]
    assert Prediction().tally(1, *found.tolist()) == Predicted(1, MOST_BITS * UNIT, 1)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_no_result(wrong: float) -> None:
    """Also one byte among many: a bounded number in its place would pass for one."""
    logits, targets = answers()
    before = Prediction().judged(logits, targets).tolist()
    logits[1, 2, targets[1, 2]] = wrong
    units, of_bytes, unknown = Prediction().judged(logits, targets).tolist()
    assert (of_bytes, unknown) == (before[1], 1)
    assert 0 < units < before[0]
    with pytest.raises(NotFinite, match=r"^1 of 35 bytes are predicted with a probability that"):
        Prediction().tally(WINDOWS, units, of_bytes, unknown)


def test_another_symbol_that_is_impossible_is_no_fault() -> None:
    logits, targets = answers()
    logits[1, 2, (targets[1, 2] + 1) % SYMBOLS] = float("-inf")
    assert Prediction().judged(logits, targets).tolist()[2] == 0


def test_images_are_judged_as_ever() -> None:
    judged = Classification().judged(torch.eye(3), torch.tensor([0, 1, 0]))
    assert Classification().tally(3, *judged.tolist()) == Classified(3, 2)
