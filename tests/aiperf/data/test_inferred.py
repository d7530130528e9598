"""What a run of somebody's own images needs to know, from real files in every form that is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from aiperf.config import load_preset, with_overrides
from aiperf.data import load, look
from aiperf.data.found import Found, Look
from aiperf.data.inferred import MOST_PASSES, inferred
from aiperf.data.stratify import take_validation
from aiperf.errors import DataError
from tests.aiperf.data.sets import write_cifar10, write_folders, write_idx


def test_of_idx_files(tmp_path: Path) -> None:
    write_idx(tmp_path)
    assert inferred(look(tmp_path), {}) == {
        "data.name": "idx",
        "data.channels": 1,
        "data.size": 12,
        "data.classes": 4,
        "data.validation_examples": 10,
        "training.epochs": [60, 120, 240],
    }


def test_of_an_image_folder(tmp_path: Path) -> None:
    """The shorter sides are 24 to 30: the median, 28, is shown at 24."""
    write_folders(tmp_path)
    assert inferred(look(tmp_path), {}) == {
        "data.name": "imagefolder",
        "data.channels": 3,
        "data.size": 24,
        "data.classes": 3,
        "data.validation_examples": 9,
        "training.epochs": [60, 120, 240],
    }


def test_of_a_folder_of_large_grey_images(tmp_path: Path) -> None:
    write_folders(tmp_path)
    for number, file in enumerate(sorted(path for path in tmp_path.rglob("*.*") if path.is_file())):
        file.unlink()
        Image.new("L", (500, 375), number).save(file.with_suffix(".png"))
    found = inferred(look(tmp_path), {})
    assert (found["data.channels"], found["data.size"]) == (1, 64)


def test_of_cifar10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiperf.data.cifar10.IMAGES_A_FILE", 20)
    write_cifar10(tmp_path, "bin", 20)
    found = inferred(look(tmp_path), {})
    assert {key: found[f"data.{key}"] for key in ("name", "channels", "size", "classes")} == {
        "name": "cifar10",
        "channels": 3,
        "size": 32,
        "classes": 10,
    }


@pytest.mark.parametrize("write", [write_idx, write_folders])
def test_what_is_inferred_is_read(write: object, tmp_path: Path) -> None:
    assert callable(write)
    write(tmp_path)
    config = with_overrides(load_preset("own"), {**inferred(look(tmp_path), {}), "data.path": str(tmp_path)})
    data = load(config.data, torch.device("cpu"), 1)
    assert data.validation.num_examples == config.data.validation_examples
    assert (
        data.train.num_examples == data.manifest["official_training_examples"] - data.validation.num_examples
    )


def found_of(by_class: list[int]) -> Look:
    labels = np.repeat(np.arange(len(by_class)), by_class)
    part = Found("idx", "files", labels, (1,), ("none",))
    return Look(part, part, 1, 28)


def test_of_sixty_thousand_images() -> None:
    found = inferred(found_of([6000] * 10), {})
    assert found["data.validation_examples"] == 5000
    assert found["training.epochs"] == [1, 2, 4]


@pytest.mark.parametrize(
    ("by_class", "held_back"),
    [([500, 500], 200), ([5000, 5000], 1000), ([30, 30], 15), ([990, 10], 200), ([998, 2], 500)],
)
def test_what_is_held_back_is_a_tenth_within_bounds(by_class: list[int], held_back: int) -> None:
    """The last two: the rarest class must have its image."""
    assert inferred(found_of(by_class), {})["data.validation_examples"] == held_back


def test_what_is_stated_goes_before() -> None:
    found = inferred(found_of([6000] * 10), {"data.training_examples": 2000, "data.validation_examples": 500})
    assert found["data.validation_examples"] == 500
    assert found["training.epochs"] == [10, 20, 40]


@given(st.lists(st.integers(2, 400), min_size=2, max_size=12))
def test_every_class_has_an_image_in_both_parts(by_class: list[int]) -> None:
    """As the loader divides them; where the classes are too uneven it refuses, and names the class."""
    found = found_of(by_class)
    told = inferred(found, {})
    wanted = told["data.validation_examples"]
    assert 1 <= wanted <= sum(by_class) // 2
    assert 1 <= told["training.epochs"][0] <= MOST_PASSES
    if wanted * min(by_class) >= sum(by_class):
        config = with_overrides(load_preset("own"), {**told, "data.path": "x"}).data
        training, validation = take_validation(found.training.labels, config, "files")
        for part in (training, validation):
            assert len(np.unique(found.training.labels[part])) == len(by_class)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], "{folder}: contains neither train/ with one folder per class, nor IDX files"),
        (["train/a/", "x-ubyte"], "{folder}: holds imagefolder and idx; choose one with --set data.name="),
        (["test_batch.bin"], "{folder}/data_batch_1.bin: missing; download the whole data set again"),
        (["train/a/"], "{folder}: neither test/ nor val/ contains class folders"),
        (
            ["train-images-ubyte"],
            "{folder}: needs exactly one file named train … labels … ubyte[.gz], has none",
        ),
    ],
)
def test_what_is_no_set_is_refused(names: list[str], expected: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).mkdir(parents=True) if name.endswith("/") else (tmp_path / name).touch()
    with pytest.raises(DataError) as refused:
        look(tmp_path)
    assert str(refused.value).startswith(expected.format(folder=tmp_path))


def test_another_kind_than_stated_is_told_with_all_else(tmp_path: Path) -> None:
    write_idx(tmp_path)
    changes = {"data.name": "imagefolder", "data.classes": 7, "data.path": str(tmp_path)}
    config = with_overrides(load_preset("own"), changes).data
    with pytest.raises(DataError) as refused:
        load(config, torch.device("cpu"), 1)
    told = str(refused.value).split(". Also: ")
    assert [text.rpartition("; ")[2] for text in told] == [
        "set data.name = 'idx'",
        "set data.channels = 1",
        "set data.classes = 4 or correct the labels",
        "lower data.training_examples or data.validation_examples",
    ]
