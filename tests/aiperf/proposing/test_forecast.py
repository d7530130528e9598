"""What a run and its training take, by hand: memory besides the passes, and the sums of `run --dry-run`."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod

import pytest

from aiperf.config import with_overrides
from aiperf.proposing.forecast import forecast
from aiperf.proposing.hyper import SHARE, Memory, configured_point
from aiperf.proposing.memory_model import step_parts, training_bytes
from aiperf.proposing.plan import EXAMPLES_AT_ONCE
from nas.layers import Layer, MissingReading, ReLU
from nas.matrices import hidden_matrices
from nas.memory import forward_memory, step_memory
from nas.ops import OPS
from nas.seeds import residual, resnet50
from nas.text_seeds import llama_1x64
from tests.aiperf.presets import resolved_preset
from tests.aiperf.proposing.test_jobs import doubled

TRAINING = replace(resolved_preset("digits").training, format="fp32", batch_size=50)


def test_terms_by_hand() -> None:
    seed = residual()
    parts = step_parts(seed, TRAINING, 50, 1)
    weights = 4 * 5142
    statistics = 4 * sum(2 * shape[0] for name, shape in seed.weights.items() if name.endswith("bn.weight"))
    assert (parts["weights"], parts["gradients"], parts["optimizer_state"]) == (weights,) * 3
    assert parts["statistics"] == statistics
    assert parts["examples"] == 50 * (4 * 32 * 32 + 8)
    # Half of what the layers put out is written over what they read, and the backward pass needs the rest.
    assert 0.4 < parts["activations"] / (50 * 4 * seed.num_activations) < 0.7
    assert "onednn" not in parts
    best = 2 * weights + statistics
    assert training_bytes(seed, TRAINING, 50, 1) == sum(parts.values()) + best


def test_memory_is_unknown_where_a_layer_does_not_state_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then no larger batch is tried, and the plan of a run says so."""
    seed, twice = residual(), replace(configured_point(TRAINING), batch=2.0)
    assert Memory().bounded(twice, seed, TRAINING, 1, 1e12).batch == 2
    config = resolved_preset("digits")
    assert forecast(config, seed, (100, 10), 1.0).memory_bytes is not None
    monkeypatch.setattr(ReLU, "footprint", Layer.footprint)
    message = "^ReLU does not state its memory; its class needs the method 'footprint'$"
    with pytest.raises(MissingReading, match=message):
        step_memory(seed, 4, 1)
    assert step_parts(seed, TRAINING, 4, 1) is None
    assert Memory().bounded(twice, seed, TRAINING, 1, 1e12).batch == 1
    assert forecast(config, seed, (100, 10), 1.0).memory_bytes is None


def test_examples_of_text_are_symbols_and_those_that_follow() -> None:
    seed = llama_1x64((32,))
    assert step_parts(seed, TRAINING, 4, 1)["examples"] == 4 * 2 * 8 * 32


def test_only_a_processor_has_onednn() -> None:
    """For ResNet-50 with few activations it is about the largest kernel, which oneDNN lays out anew."""
    graph = resnet50((3, 64, 64))
    device, processor = (step_parts(graph, TRAINING, 2, 1, kind) for kind in ("cuda", "cpu"))
    largest = 4 * max(prod(shape) for name, shape in graph.weights.items() if "conv" in name)
    assert 0.9 * largest < processor.pop("onednn") <= largest
    assert processor == device


def test_muon_needs_most_after_the_passes_of_a_small_batch() -> None:
    graph = llama_1x64((8,))
    muon, adamw = (step_parts(graph, replace(TRAINING, optimizer=name), 1, 1) for name in ("muon", "adamw"))
    largest = max(map(prod, hidden_matrices(graph).values()))
    assert muon["activations"] == adamw["activations"]
    grams = 2 * 4 * 64 * 64
    assert muon["temporary"] == max(adamw["temporary"], 12 * largest + grams - muon["activations"])


@pytest.mark.parametrize(("side", "images"), [(64, 8), (8, 4096)], ids=["validated", "checked"])
def test_a_captured_step_takes_the_place_of_eager_ones(side: int, images: int) -> None:
    """A validation cannot use its memory; where an image is small, the check of the capture needs more."""
    seed = resnet50((3, side, side))
    step, graphed, auto = (replace(TRAINING, step=name) for name in ("eager", "graphed", "auto"))
    eager = training_bytes(seed, step, images, 1, "cuda")
    parts = step_parts(seed, step, images, 1, "cuda")
    best = eager - sum(parts.values())
    validated = best + forward_memory(seed, 4, EXAMPLES_AT_ONCE) + EXAMPLES_AT_ONCE * (4 * 3 * side**2 + 8)
    checked = 5 * parts["gradients"] + parts["examples"]
    assert (checked > validated) is (side == 8)
    found = sum(parts.values()) + parts["gradients"] + parts["examples"] + max(checked, validated)
    assert training_bytes(seed, graphed, images, 1) == training_bytes(seed, auto, images, 1, "cuda") == found
    assert training_bytes(seed, auto, images, 1, "npu") == eager  # which captures nothing


def test_a_larger_batch_leaves_room_for_a_capture_on_devices_that_can() -> None:
    first, _ = doubled({})
    graph = [first.jobs._in_flight._each[first.dispatch().trial.number].graph for _ in range(3)][-1]
    eager = training_bytes(graph, first.config.training, 100, 1)
    for software, batch_size in (({}, 100), ({"cuda": "12.8"}, 50)):
        story, _ = doubled({}, memory_bytes=ceil(eager / SHARE))
        devices = story.replay.leg.devices
        devices |= {rank: replace(ready, software=software) for rank, ready in devices.items()}
        assert [story.dispatch().trial.hyper.batch_size for _ in range(3)] == [50, 50, batch_size]


def test_the_gradients_of_a_group_stay_in_their_buckets() -> None:
    graph = resnet50((3, 64, 64))
    alone, grouped = (step_parts(graph, TRAINING, 2, ranks) for ranks in (1, 2))
    fresh = 4 * graph.weights["classifier.weight"][0] * graph.weights["classifier.weight"][1]
    assert grouped["temporary"] > alone["temporary"] + 0.9 * fresh
    assert {**grouped, "temporary": 0} == {**alone, "temporary": 0}


# Forecasts


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
