"""IDX files: read whole, or refused by name."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from aiperf.config import DataConfig
from aiperf.data import load
from aiperf.data.idx import read_idx
from aiperf.errors import ConfigError, DataError
from tests.aiperf.data.sets import idx_bytes, labels_of, pictures, write_idx

CPU = torch.device("cpu")
TRAIN_IMAGES = "train-images-idx3-ubyte"
TRAIN_LABELS = "train-labels-idx1-ubyte"


def test_raw_and_compressed_files_are_the_same_set(tmp_path: Path) -> None:
    raw = load(write_idx(tmp_path / "raw", compressed=False), CPU, 1)
    compressed = load(write_idx(tmp_path / "gz"), CPU, 1)
    assert raw.manifest == compressed.manifest
    assert raw.manifest["official_training_examples"] == 40
    assert (raw.train.num_examples, raw.validation.num_examples, raw.test.num_examples) == (32, 8, 20)


def test_the_official_test_images_are_shown_as_they_are(tmp_path: Path) -> None:
    data = load(write_idx(tmp_path), CPU, 1)
    ((images, labels),) = data.test.sweep(100)
    written = torch.from_numpy(pictures(20, 12, 1, seed=2)).float()
    line = torch.corrcoef(torch.stack([images.flatten(), written.flatten()]))
    assert line[0, 1] > 0.999999
    assert labels.tolist() == labels_of(20, 4).tolist()


def test_other_sizes_are_shown_bilinearly(tmp_path: Path) -> None:
    data = load(replace(write_idx(tmp_path), size=6), CPU, 1)
    ((images, _),) = data.test.sweep(100)
    assert images.shape == (20, 1, 6, 6)


def test_names_of_other_releases_are_found(tmp_path: Path) -> None:
    config = write_idx(tmp_path, compressed=False)
    for file in list(tmp_path.iterdir()):
        name = file.name.replace("t10k", "test").replace("-idx", ".idx")
        file.rename(file.with_name(f"emnist-letters-{name}"))
    assert load(config, CPU, 1).test.num_examples == 20


def test_of_a_file_in_both_forms_the_raw_one_is_read(tmp_path: Path) -> None:
    config = write_idx(tmp_path, compressed=False)
    (tmp_path / f"{TRAIN_IMAGES}.gz").write_bytes(b"damaged")
    assert load(config, CPU, 1).train.num_examples == 32


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-7])


Damage = Callable[[Path], object]


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        pytest.param(
            lambda folder: cut(folder / TRAIN_IMAGES),
            "{folder}/train-images-idx3-ubyte: 5769 bytes, but its header (40, 12, 12) requires 5776; it is "
            "truncated or damaged: download it again",
            id="cut off",
        ),
        pytest.param(
            lambda folder: (folder / TRAIN_IMAGES).write_bytes(b"\0\0\x08\x03\0\0"),
            "{folder}/train-images-idx3-ubyte: 6 bytes, but its header (0, 0, 0) requires 16; it is "
            "truncated or damaged: download it again",
            id="cut off in its header",
        ),
        pytest.param(
            lambda folder: (folder / TRAIN_LABELS).write_bytes(b"<html>404</html>"),
            "{folder}/train-labels-idx1-ubyte: begins with 3c 68 74 6d instead of 00 00 08 01 (bytes in 1 "
            "dimensions); it is not such an IDX file: download it again",
            id="another file",
        ),
        pytest.param(
            lambda folder: (folder / TRAIN_LABELS).write_bytes(idx_bytes(labels_of(39, 4))),
            "{folder}/train-images-idx3-ubyte, train-labels-idx1-ubyte: 40 images but 39 labels; download "
            "the files again, all from one release",
            id="another number of labels",
        ),
        pytest.param(
            lambda folder: (folder / TRAIN_LABELS).write_bytes(idx_bytes(labels_of(40, 5))),
            "{folder}/train-images-idx3-ubyte, train-labels-idx1-ubyte: labels from 0 to 4, 5 of them used"
            ", but data.classes is 4; set data.classes = 5 or correct the labels",
            id="a label too high",
        ),
        pytest.param(
            lambda folder: (folder / TRAIN_LABELS).write_bytes(idx_bytes(labels_of(40, 4) + 1)),
            "{folder}/train-images-idx3-ubyte, train-labels-idx1-ubyte: labels from 1 to 4, 4 of them used"
            "; number the classes from 0 without gaps; at least two are needed",
            id="labels from 1, as EMNIST's letters have",
        ),
        pytest.param(
            lambda folder: (folder / TRAIN_LABELS).write_bytes(idx_bytes(labels_of(40, 1))),
            "{folder}/train-images-idx3-ubyte, train-labels-idx1-ubyte: labels from 0 to 0, 1 of them used"
            "; number the classes from 0 without gaps; at least two are needed",
            id="one class",
        ),
        pytest.param(
            lambda folder: (folder / TRAIN_IMAGES).write_bytes(idx_bytes(np.zeros((40, 12, 11), np.uint8))),
            "{folder}/train-images-idx3-ubyte, train-labels-idx1-ubyte: images of 12 x 11 are not square; "
            "crop them first",
            id="not square",
        ),
        pytest.param(
            lambda folder: (folder / TRAIN_IMAGES).write_bytes(idx_bytes(np.zeros((40, 12, 12), np.uint8))),
            "{folder}/train-images-idx3-ubyte, train-labels-idx1-ubyte: all pixels of a channel are equal; "
            "download the files again",
            id="blank",
        ),
        pytest.param(
            lambda folder: (folder / TRAIN_IMAGES).unlink(),
            "{folder}: needs exactly one file named train … images … ubyte[.gz], has none; "
            "fetch or remove files",
            id="absent",
        ),
        pytest.param(
            lambda folder: (folder / TRAIN_IMAGES).write_bytes(idx_bytes(np.zeros((40, 0, 0), np.uint8))),
            "{folder}/train-images-idx3-ubyte, train-labels-idx1-ubyte: no images; download the files again",
            id="without pixels",
        ),
        pytest.param(
            lambda folder: (folder / f"other-{TRAIN_IMAGES}").write_bytes(b""),
            "{folder}: needs exactly one file named train … images … ubyte[.gz], has "
            "other-train-images-idx3-ubyte, train-images-idx3-ubyte; fetch or remove files",
            id="two sets",
        ),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, damage: Damage, expected: str) -> None:
    config = write_idx(tmp_path, compressed=False)
    damage(tmp_path)
    with pytest.raises(DataError) as refused:
        load(config, CPU, 1)
    assert str(refused.value) == expected.format(folder=tmp_path)


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    file = tmp_path / f"{TRAIN_LABELS}.gz"
    whole = gzip.compress(idx_bytes(labels_of(4000, 7)))
    for damaged in (whole[:-20], b"\0" + whole[1:], whole[:40] + b"\xff" * 9 + whole[49:]):
        file.write_bytes(damaged)
        with pytest.raises(DataError, match=rf"^{file}: cannot be read \(.*\); download the file again$"):
            read_idx(file, 1)


def test_an_absent_folder_is_refused(tmp_path: Path) -> None:
    config = DataConfig("idx", 1, 28, 10, path=f"{tmp_path}/nowhere", validation_examples=10)
    with pytest.raises(DataError) as refused:
        load(config, CPU, 1)
    assert str(refused.value) == (
        f"data.path is '{tmp_path}/nowhere', which is not a folder; give the folder of the images with --data"
    )
    with pytest.raises(ConfigError, match=r"^data.path is not set; give the folder"):
        load(replace(config, path=""), CPU, 1)


@pytest.mark.slow
def test_the_real_fashion_mnist() -> None:
    """Debian's package dataset-fashion-mnist; elsewhere, the folder named by FASHION_MNIST."""
    folder = os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist")
    if not Path(folder).is_dir():
        pytest.fail(
            f"{folder} is absent; apt-get install dataset-fashion-mnist, or set FASHION_MNIST to the folder"
        )
    config = DataConfig("idx", 1, 28, 10, path=folder, training_examples=5000, validation_examples=1000)
    assert load(config, CPU, 1).manifest == {
        "name": "idx",
        "synthetic": False,
        "channels": 1,
        "size": 28,
        "classes": 10,
        "sha256": "f0bad0b56f73d1ad45ee446ea48a95624e8c673a3d376f3873426bf78cd67dbf",
        "official_training_examples": 60000,
        "training_examples": 5000,
        "training_examples_per_class": [500, 500],
        "validation_examples": 1000,
        "validation_examples_per_class": [100, 100],
        "test_examples": 10000,
        "test_examples_per_class": [1000, 1000],
    }
