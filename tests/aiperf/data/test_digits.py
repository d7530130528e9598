"""The default set: scikit-learn's digits by the list in the repository."""

from __future__ import annotations

import gzip
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from aiperf.config import DataConfig, load_preset
from aiperf.data import digits, load
from aiperf.data.stratify import stratified
from aiperf.errors import DataError

CPU = torch.device("cpu")
CONFIG = DataConfig("digits", 1, 32, 10, training_examples=200, validation_examples=400)


def bundled() -> Any:
    from sklearn.datasets import load_digits  # here: else every process that collects tests waits for it

    return load_digits()


def test_the_list_divides_all_digits_into_200_400_and_1197_by_class() -> None:
    pinned = digits._pinned()
    assert {name: len(indices) for name, indices in pinned.items()} == {
        "training": 200,
        "validation": 400,
        "test": 1197,
    }
    assert sorted(np.concatenate(list(pinned.values()))) == list(range(1797))
    labels = bundled().target
    for indices in pinned.values():
        expected = np.bincount(labels) * len(indices) / 1797
        assert np.abs(np.bincount(labels[indices]) - expected).max() < 2


def test_the_list_is_what_the_stratified_choice_gives() -> None:
    labels = bundled().target.astype(np.int64)
    pinned = digits._pinned()
    assert stratified(labels, 400).tolist() == pinned["validation"].tolist()


def test_the_preset_shows_them_at_32_pixels_and_names_them() -> None:
    data = load(load_preset("digits").data, CPU, 1)
    assert data.manifest == {
        "name": "digits",
        "synthetic": False,
        "channels": 1,
        "size": 32,
        "classes": 10,
        "sha256": "eda20a873fb051bbabf27685ed0755a34734a120599481b7539d0e114e86c145",
        "official_training_examples": 600,
        "training_examples": 200,
        "training_examples_per_class": [19, 21],
        "validation_examples": 400,
        "validation_examples_per_class": [39, 41],
        "test_examples": 1197,
        "test_examples_per_class": [116, 122],
    }


def test_a_digit_is_the_picture_of_scikit_learn_enlarged_bilinearly() -> None:
    data = load(CONFIG, CPU, 1)
    pinned = digits._pinned()["test"]
    (shown, labels), *_ = data.test.sweep(5)
    found = bundled()
    assert labels.tolist() == found.target[pinned[:5]].tolist()
    ink = torch.from_numpy(found.images[pinned[:5]]).float()[:, None]
    enlarged = torch.nn.functional.interpolate(ink, (32, 32), mode="bilinear", align_corners=False)
    paired = torch.corrcoef(torch.stack([shown.flatten(), enlarged.flatten()]))
    assert paired[0, 1] > 0.9999


def test_training_has_mean_0_and_deviation_1() -> None:
    (images, _), *_ = load(CONFIG, CPU, 1).train.sweep(200)
    assert abs(images.mean().item()) < 1e-5
    assert abs(images.std(correction=0).item() - 1) < 1e-5


def test_fewer_images_are_a_stratified_part_of_the_list() -> None:
    data = load(replace(CONFIG, training_examples=50, validation_examples=100), CPU, 1)
    assert (data.train.num_examples, data.validation.num_examples, data.test.num_examples) == (50, 100, 1197)
    assert data.manifest["training_examples_per_class"] == [5, 5]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            {"training_examples": 3},
            (
                "scikit-learn's digits: class 2 has no image among the 3 of training; "
                "raise data.training_examples"
            ),
        ),
        (
            {"classes": 9, "channels": 3, "training_examples": 201, "validation_examples": 401},
            (
                "scikit-learn's digits: images have 1 channels, data.channels is 3; set data.channels = 1. "
                "Also: scikit-learn's digits: labels from 0 to 9, 10 of them used, but data.classes is 9; "
                "set data.classes = 10 or correct the labels. Also: "
                "scikit-learn's digits: data.training_examples is 201, but the pinned list has 200; reduce "
                "it. Also: scikit-learn's digits: data.validation_examples is 401, but the pinned list has "
                "400; reduce it"
            ),
        ),
        (
            {"augmentation": "resized-crop-flip"},
            (
                "scikit-learn's digits: data.augmentation 'resized-crop-flip' is not for images of this "
                "kind; set it to 'none' or 'shift' or 'crop-flip'"
            ),
        ),
    ],
)
def test_a_contradiction_is_refused(changed: dict[str, object], expected: str) -> None:
    with pytest.raises(DataError) as refused:
        load(replace(CONFIG, **changed), CPU, 1)
    assert str(refused.value) == expected


def test_other_digits_than_the_pinned_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits, "SHA256", "0" * 64)
    with pytest.raises(
        DataError, match=f"SHA-256 eda20a.* instead of {'0' * 64}; install the scikit-learn of"
    ):
        load(CONFIG, CPU, 1)


@pytest.mark.parametrize(
    "content",
    [None, b"", b"\x1f\x8b\x08 no archive", gzip.compress(b"0,1,x\n", mtime=0)],
    ids=["absent", "empty", "no archive", "no numbers"],
)
def test_a_library_without_them_is_told_in_a_line(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = ModuleSpec("sklearn", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(digits, "find_spec", lambda name: spec)
    file = tmp_path / "datasets" / "data" / "digits.csv.gz"
    file.parent.mkdir(parents=True)
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(DataError, match=r"digits.csv.gz cannot be read: |digits: no images"):
        load(CONFIG, CPU, 1)


def test_without_the_library_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits, "find_spec", lambda name: None)
    with pytest.raises(DataError, match="is not installed; remedy: pip install scikit-learn"):
        load(CONFIG, CPU, 1)
