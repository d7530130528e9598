"""The arithmetic of `run --dry-run`, by hand."""

from __future__ import annotations

from math import prod

import pytest

from aiperf.config import with_overrides
from aiperf.proposing.forecast import forecast
from nas.ops import OPS
from nas.seeds import residual
from tests.aiperf.presets import resolved_preset


def test_figures_by_hand() -> None:
    fp32 = {"training.format": "fp32", "training.batch_size": 50, "training.epochs": [60]}
    config = with_overrides(resolved_preset("digits"), {**fp32, "limits.minutes": 2.0})
    seed = residual()
    share = seed.cost.evaluate.price(OPS) / seed.cost.train.price(OPS)
    seen = forecast(config, seed, examples=(200, 400), examples_per_second=2000.0)
    assert seen.trial_seconds == pytest.approx((12_000 + 6 * 400 * share) / 2000)
    assert seen.trials_a_group == pytest.approx(120 / seen.trial_seconds)
    assert seen.least_ranked_hours == 1.0
    by_adamw = forecast(with_overrides(config, {"training.optimizer": "adamw"}), seed, (200, 400), 2000.0)
    assert by_adamw.weights_bytes == seen.weights_bytes * 3 // 2
    # One more number beside each weight, in the step and in the copy of the best network.
    assert by_adamw.memory_bytes == seen.memory_bytes + 2 * 4 * 5142
    by_muon = forecast(with_overrides(config, {"training.optimizer": "muon"}), seed, (200, 400), 2000.0)
    matrices = sum(prod(shape) for name, shape in seed.weights.items() if "conv" in name)
    assert by_adamw.memory_bytes - by_muon.memory_bytes == 2 * 4 * matrices > 0


def test_the_journal_grows_no_faster_than_the_blocks_of_all_groups() -> None:
    config = with_overrides(resolved_preset("digits"), {"limits.minutes": 60.0})
    few, many, more = (forecast(config, residual(), (200, 400), 2000.0, groups) for groups in (43, 86, 516))
    assert few.journal_bytes * 2 == many.journal_bytes == more.journal_bytes
    patient = forecast(config, residual(), (200, 400), 2000.0, 860, silence_seconds=600.0)
    assert patient.journal_bytes == many.journal_bytes


def test_a_slow_device_needs_longer_than_an_hour_to_be_ranked() -> None:
    ranked = resolved_preset("ranked")
    seen = forecast(ranked, residual(), examples=(1_231_167, 50_000), examples_per_second=1000.0)
    assert seen.least_ranked_hours == pytest.approx(seen.trial_seconds / 3600)
    assert seen.least_ranked_hours > 5


def test_without_a_limit_of_time_the_trials_are_not_known() -> None:
    config = with_overrides(resolved_preset("digits"), {"limits.minutes": 0.0, "limits.max_trials": 5})
    assert forecast(config, residual(), (200, 400), 100.0).trials_a_group is None
