"""What a run of somebody's own images needs to know, from real files in every form that is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from aiperf.config import DataConfig, load_preset, with_overrides
from aiperf.data import load, look
from aiperf.data.found import Found, Look
from aiperf.data.inferred import MOST_PASSES, inferred
from aiperf.data.stratify import take_validation
from aiperf.errors import DataError
from tests.aiperf.data.sets import CPU, refusal, write_cifar10, write_folders, write_idx

KEYS = [f"data.{key}" for key in ("name", "channels", "size", "classes", "validation_examples")]


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (write_idx, ("idx", 1, 12, 4, 10, [60, 120, 240])),
        (write_folders, ("imagefolder", 3, 24, 3, 9, [60, 120, 240])),  # of shorter sides of 24 to 30
        (lambda root: write_cifar10(root, "bin", 20), ("cifar10", 3, 32, 10, 25, [60, 120, 240])),
    ],
)
def test_what_is_inferred_is_read(
    write: Callable[[Path], DataConfig],
    expected: tuple[object, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aiperf.data.cifar10.IMAGES_A_FILE", 20)
    write(tmp_path)
    found = inferred(look(tmp_path), {})
    assert found == dict(zip([*KEYS, "training.epochs"], expected))
    config = with_overrides(load_preset("own"), {**found, "data.path": str(tmp_path)}).data
    data = load(config, CPU, 1)
    assert data.validation.num_examples == config.validation_examples
    official = data.manifest["official_training_examples"]
    assert data.train.num_examples == official - data.validation.num_examples


def test_of_a_folder_of_large_grey_images(tmp_path: Path) -> None:
    write_folders(tmp_path)
    for number, file in enumerate(sorted(path for path in tmp_path.rglob("*.*") if path.is_file())):
        file.unlink()
        Image.new("L", (500, 375), number).save(file.with_suffix(".png"))
    found = inferred(look(tmp_path), {})
    assert (found["data.channels"], found["data.size"]) == (1, 64)


def found_of(by_class: list[int]) -> Look:
    labels = np.repeat(np.arange(len(by_class)), by_class)
    part = Found("idx", "files", labels, (1,), ("none",))
    return Look(part, part, 1, 28)


@pytest.mark.parametrize(
    ("by_class", "stated", "held_back", "epochs"),
    [
        ([6000] * 10, {}, 5000, 1),
        ([6000] * 10, {"data.training_examples": 2000, "data.validation_examples": 500}, 500, 10),
        ([500, 500], {}, 200, 25),
        ([5000, 5000], {}, 1000, 2),
        ([30, 30], {}, 15, 60),
        ([990, 10], {}, 200, 25),  # here and below the rarest class must have its image
        ([998, 2], {}, 500, 40),
    ],
)
def test_what_is_held_back_is_a_tenth_within_bounds(
    by_class: list[int], stated: dict[str, int], held_back: int, epochs: int
) -> None:
    """Unless it is stated; and fewer images are shown oftener."""
    found = inferred(found_of(by_class), stated)
    assert found["data.validation_examples"] == held_back
    assert found["training.epochs"] == [epochs, 2 * epochs, 4 * epochs]


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
    told = refusal(config).split(". Also: ")
    assert [text.rpartition("; ")[2] for text in told] == [
        "set data.name = 'idx'",
        "set data.channels = 1",
        "set data.classes = 4 or correct the labels",
        "lower data.training_examples or data.validation_examples",
    ]
