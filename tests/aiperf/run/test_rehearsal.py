"""`run --dry-run`: it reads the images that the run would read, and refuses what the run would refuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aiperf.config import Config, DataConfig, load_preset, with_overrides
from aiperf.errors import AiperfError, ConfigError
from aiperf.ranks.rank_options import RankOptions
from aiperf.ranks.ranks import Ranks
from aiperf.run import rehearsal
from aiperf.run.rehearsal import rehearsal_text
from aiperf.wire.layout import Described
from tests.aiperf.data.packed.pack import packed
from tests.aiperf.data.sets import write_folders, write_idx
from tests.aiperf.groups import PROCESSOR

RANKS = Ranks(RankOptions("cpu"))


@pytest.fixture(autouse=True)
def processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ranks, "devices", lambda self, config: (PROCESSOR,))


def rehearsed(config: Config, ranks: Ranks = RANKS) -> dict[str, str]:
    """Each line by its name."""
    lines = (line.split(" ", 1) for line in _named(rehearsal_text(config, ranks, 1000.0)))
    return {name: text.lstrip(". ") for name, text in lines}


def _named(text: str) -> list[str]:
    return [line[:26].replace(" ", "_").rstrip("_.") + " " + line[27:] for line in text.splitlines()]


def own(data: DataConfig) -> Config:
    return replace(load_preset("digits"), data=data)


def test_the_digits_have_their_pinned_list_whatever_is_held_back_and_cannot_be_ranked() -> None:
    config = with_overrides(
        load_preset("digits"), {"data.training_examples": 0, "data.validation_examples": 300}
    )
    lines = rehearsed(config)
    assert lines["data"] == (
        "digits, 10 classes, 32 x 32, 1 channel; 200 training, 300 validation, 1,197 test images"
    )
    assert "least_span_to_be_ranked" not in lines
    assert lines["memory_of_a_device"].endswith(" for the seed (modelled)")
    large = rehearsed(with_overrides(config, {"training.batch_size": 10**9}))
    assert large["memory_of_a_device"].endswith(" for the seed (modelled), more than it has")
    assert lines["cannot_be_ranked"].startswith("classes is 10, not 1000; channels is 1, not 3; size is 32, ")


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (write_idx, "idx, 4 classes, 12 x 12, 1 channel; 32 training, 8 validation, 20"),
        (write_folders, "imagefolder, 3 classes, 16 x 16, 3 channels; 30 training, 6 validation, 15"),
    ],
)
def test_images_are_counted_where_they_lie(
    write: Callable[[Path], DataConfig], told: str, tmp_path: Path
) -> None:
    assert rehearsed(own(write(tmp_path)))["data"] == f"{told} test images"


def test_packed_images_are_rehearsed_without_staging_them(tmp_path: Path) -> None:
    folders = write_folders(tmp_path / "set")
    target, disk = packed(tmp_path / "set", tmp_path / "packed"), tmp_path / "disk"
    config = own(replace(folders, name="packed", path=str(target), stage=str(disk)))
    assert rehearsed(config)["data"] == (
        "packed, 3 classes, 16 x 16, 3 channels; 30 training, 6 validation, 15 test images"
    )
    assert not disk.exists()


def test_the_layout_of_several_ranks_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    link: Any = object()
    ranks = Ranks(RankOptions("cpu", devices_per_trial=2), link, ("node1",) * 3 + ("node2",) * 2)
    described = tuple(replace(PROCESSOR, rank=rank) for rank in range(1, 5))
    for name in ("devices", "first_devices"):
        monkeypatch.setattr(Ranks, name, lambda self, config: described)
    told = rehearsed(load_preset("digits"), ranks)
    assert told["hosts"] == "node1: the master, node1: 2 ranks, node2: 2 ranks"
    assert told["groups"] == "2 of 2 ranks: 1 2 on node1; 3 4 on node2"
    assert (told["backend"], told["devices"]) == ("ddp", "4 × a processor (cpu), 8 GiB")
    spread = replace(ranks, options=replace(ranks.options, spread=True))
    assert rehearsed(load_preset("digits"), spread)["groups"] == (
        "2 of 2 ranks: 1 3 on node1, node2; 4 2 on node2, node1"
    )


def test_a_set_that_can_be_ranked_has_a_least_span(monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest stands for ImageNet, which is not to be had here."""
    shape = {"name": "imagefolder", "classes": 1000, "channels": 3, "size": 224, "synthetic": False}
    examples = {"training": 1_231_167, "validation": 50_000, "test": 50_000, "official_training": 1_281_167}
    manifest = shape | {f"{part}_examples": number for part, number in examples.items()}
    manifest["test_examples_per_class"] = [50, 50]
    monkeypatch.setattr(
        "aiperf.data.load", lambda *_: SimpleNamespace(manifest=manifest, note="train/ 9 of 9 images")
    )
    lines = rehearsed(load_preset("ranked"))
    assert lines["least_span_to_be_ranked"] == "5.2 h (an hour, and one completed trial per group)"
    assert "cannot_be_ranked" not in lines
    monkeypatch.setattr(Ranks, "devices", lambda self, config: (replace(PROCESSOR, kind="cuda"),))
    refused = "a processor: neither a listed peak in fp32 .* a list that knows the peak ranks such a run"
    with pytest.raises(ConfigError, match=refused):
        rehearsed(load_preset("ranked"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"data.name": "synthetic", "data.training_examples": 0},
            "data.training_examples, data.validation_examples and data.test_examples must all be set",
        ),
        ({"ranked": True}, "ranked = true, but classes is 10, not 1000"),
        # No processor multiplies in tf32.
        ({"training.format": "tf32"}, "training.format is tf32, which is too slow on"),
    ],
)
def test_what_the_run_would_refuse_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(AiperfError) as refusal:
        rehearsal_text(with_overrides(load_preset("digits"), changes), RANKS, None)
    assert words in str(refusal.value)


def test_a_seed_that_cannot_grow_is_refused_unless_it_is_to_be_alone() -> None:
    config = with_overrides(load_preset("text"), {"seed_architecture": "gpt-4x128"})
    with pytest.raises(
        ConfigError, match="only RMSNorm and rotary positions grow; choose another seed, or set"
    ):
        rehearsal_text(config, RANKS, 1000.0)
    alone = with_overrides(config, {"limits.max_trials": 1})
    assert "gpt-4x128" in rehearsal_text(alone, RANKS, 1000.0)


def test_a_tuner_that_is_missing_is_refused_and_one_that_is_left_open_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aiperf.proposing.proposals.installed", lambda library: not library)
    lines = rehearsed(with_overrides(load_preset("digits"), {"tuning.name": "auto"}))
    assert lines["tuning"].startswith("hyper-parameters are not tuned: neither nni nor optuna is installed")
    with pytest.raises(AiperfError, match=r" -m pip install '?optuna[>=]="):
        rehearsal_text(with_overrides(load_preset("digits"), {"tuning.name": "optuna"}), RANKS, 1000.0)


def test_sensors_that_nobody_can_read_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Described(1, "NVIDIA A100-SXM4-80GB", "cuda", 80 << 30, {"bf16": 2e14}, "nvidia")
    monkeypatch.setattr(Ranks, "devices", lambda self, config: (device,))
    monkeypatch.setattr(rehearsal, "find_spec", lambda name: None)
    assert rehearsed(load_preset("digits"))["energy"].endswith(" -m pip install 'nvidia-ml-py>=12'")
    monkeypatch.setattr(rehearsal, "find_spec", lambda name: object())
    assert "energy" not in rehearsed(load_preset("digits"))
