"""`run --dry-run`: it reads the images that the run would read, and refuses what the run would refuse."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
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
from tests.tables import ComesTo

RANKS = Ranks(RankOptions("cpu"))


@pytest.fixture(autouse=True)
def processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ranks, "devices", lambda self, config: (PROCESSOR,))


def rehearsed(config: Config, ranks: Ranks = RANKS) -> dict[str, str]:
    """Each line by its name."""
    lines = rehearsal_text(config, ranks, 1000.0).splitlines()
    return {line[:26].rstrip(" .").replace(" ", "_"): line[27:].lstrip(". ") for line in lines}


def own(data: DataConfig) -> Config:
    return replace(load_preset("digits"), data=data)


def digits(changes: Mapping[str, object]) -> Config:
    return with_overrides(load_preset("digits"), dict(changes))


def text(changes: Mapping[str, object]) -> Config:
    return with_overrides(load_preset("text"), dict(changes))


def line(name: str, config: Config) -> str | None:
    return rehearsed(config).get(name)


def refused(config: Config) -> str:
    """As on any processor, by any Python."""
    with pytest.raises(AiperfError) as refusal:
        rehearsal_text(config, RANKS, None)
    return re.sub(" on .*; use .*", " on …", str(refusal.value)).replace(sys.executable, "python")


def test_what_a_run_reads_is_read_and_what_it_would_refuse_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    """The digits have their pinned list, whatever is held back; other images are counted where they lie."""
    monkeypatch.setattr("aiperf.proposing.proposals.installed", lambda library: not library)
    folders = write_folders(tmp_path / "set")
    target, disk = packed(tmp_path / "set", tmp_path / "packed"), tmp_path / "disk"
    staged = own(replace(folders, name="packed", path=str(target), stage=str(disk)))
    names = {"PACKED": staged, "IDX": tmp_path / "idx", "FOLDERS": tmp_path / "folders"}
    names |= {"write_idx": write_idx, "write_folders": write_folders, "rehearsal_text": rehearsal_text}
    comes_to_what_was_read("rehearsals.txt", {**globals(), **names})
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


def test_sensors_that_nobody_can_read_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Described(1, "NVIDIA A100-SXM4-80GB", "cuda", 80 << 30, {"bf16": 2e14}, "nvidia")
    monkeypatch.setattr(Ranks, "devices", lambda self, config: (device,))
    monkeypatch.setattr(rehearsal, "find_spec", lambda name: None)
    assert rehearsed(load_preset("digits"))["energy"].endswith(" -m pip install 'nvidia-ml-py>=12'")
    monkeypatch.setattr(rehearsal, "find_spec", lambda name: object())
    assert "energy" not in rehearsed(load_preset("digits"))
