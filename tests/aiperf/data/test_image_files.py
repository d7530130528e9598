"""Images in files, idx and cifar10, and scikit-learn's digits: shown as they are, or refused by name."""

from __future__ import annotations

import gzip
import os
import struct
import tempfile
from dataclasses import replace
from importlib.machinery import ModuleSpec
from io import BytesIO
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
import torch
from PIL import Image

from aiperf.config import DataConfig, load_preset
from aiperf.data import cifar10, digits, load
from aiperf.data.idx import read_array
from aiperf.data.parts import stratified
from aiperf.errors import DataError
from aiperf.tasks.images import known_sets
from aiperf.tasks.images.data import ImageData
from aiperf.tasks.images.known_sets import FASHION_MNIST, known_set
from aiperf.tasks.images.task import IMAGES as IMAGES_TASK
from tests.aiperf.data.sets import (
    CPU,
    digits_table,
    idx_bytes,
    labels_of,
    pictures,
    refusal,
    write_cifar10,
    write_idx,
)
from tests.tables import ComesTo

DIGITS = ImageData("digits", 1, 32, 10, training_examples=200, validation_examples=400)
IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
Damage = dict[str, bytes | int | None]


@pytest.fixture(autouse=True)
def _twenty_images_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """They stand for the ten thousand of CIFAR-10."""
    monkeypatch.setattr(cifar10, "IMAGES_A_FILE", 20)


def write(folder: Path, form: str) -> DataConfig:
    return write_cifar10(folder, form, 20) if form in ("bin", "png") else write_idx(folder, form == "gz")


@pytest.mark.parametrize(("forms", "counts"), [(("raw", "gz"), (32, 8, 20)), (("bin", "png"), (90, 10, 20))])
def test_both_forms_are_the_same_set(
    tmp_path: Path, forms: tuple[str, str], counts: tuple[int, int, int]
) -> None:
    one, other = (load(write(tmp_path / form, form), CPU, 1) for form in forms)
    assert one.manifest == other.manifest
    assert (one.train.num_examples, one.validation.num_examples, one.test.num_examples) == counts
    for ours, theirs in zip(one.test.sweep(7), other.test.sweep(7), strict=True):
        assert all(map(torch.equal, ours, theirs))


@pytest.mark.parametrize(
    ("form", "shape", "seed", "classes"),
    [("raw", (12, 1), 2, 4), ("bin", (32, 3), 5, 10), ("png", (32, 3), 5, 10)],
)
def test_the_official_test_images_are_shown_as_they_are(
    tmp_path: Path, form: str, shape: tuple[int, int], seed: int, classes: int
) -> None:
    """Colours and places stay where they are."""
    ((images, labels),) = load(write(tmp_path, form), CPU, 1).test.sweep(100)
    written = torch.from_numpy(pictures(20, *shape, seed)).permute(0, 3, 1, 2).float()
    for channel in range(shape[1]):
        pair = torch.stack([images[:, channel].flatten(), written[:, channel].flatten()])
        assert torch.corrcoef(pair)[0, 1] > 0.999999
    assert labels.tolist() == labels_of(20, classes).tolist()


def test_names_of_other_releases_are_found(tmp_path: Path) -> None:
    """And of a file in both forms the raw one is read."""
    config = write_idx(tmp_path, compressed=False)
    for file in list(tmp_path.iterdir()):
        name = file.name.replace("t10k", "test").replace("-idx", ".idx")
        file.rename(file.with_name(f"emnist-letters-{name}"))
    (tmp_path / "emnist-letters-train-images.idx3-ubyte.gz").write_bytes(b"damaged")
    (tmp_path / "._emnist-letters-train-images.idx3-ubyte").write_bytes(b"what macOS packs beside a file")
    data = load(config, CPU, 1)
    assert (data.train.num_examples, data.test.num_examples) == (32, 20)


def png(width: int, height: int, claimed: int | None = None) -> bytes:
    """Blank; by its header it may be of another width and height."""
    buffer = BytesIO()
    Image.new("RGB", (width, height)).save(buffer, "PNG")
    whole = buffer.getvalue()
    header = whole[12:16] + struct.pack(">2I", claimed or width, claimed or height) + whole[24:29]
    return whole[:12] + header + struct.pack(">I", crc32(header)) + whole[33:]


def blank(*shape: int) -> bytes:
    return idx_bytes(np.zeros(shape, np.uint8))


THIRD, SECOND = "data_batch_3.bin", "data_batch_2.png"
PICKLED: Damage = dict.fromkeys([*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"], b"")


def test_bad_files_and_contradictions_are_refused(tmp_path: Path, comes_to_what_was_read: ComesTo) -> None:
    def refused(form: str, damage: Damage) -> str:
        """Each of these files is replaced by other content, cut off by so many bytes, or removed."""
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        config = write(folder, form)
        for file, content in damage.items():
            path = folder / file
            if content is None:
                path.unlink()
            else:
                path.write_bytes(path.read_bytes()[:content] if isinstance(content, int) else content)
        return refusal(config).replace(str(folder), "…")

    names = {**globals(), "refused": refused, "refusal": refusal, "replace": replace}
    comes_to_what_was_read("refused_images.txt", names)


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    file = tmp_path / f"{LABELS}.gz"
    whole = gzip.compress(idx_bytes(labels_of(4000, 7)))
    for damaged in (whole[:-20], b"\0" + whole[1:], whole[:40] + b"\xff" * 9 + whole[49:]):
        file.write_bytes(damaged)
        with pytest.raises(DataError, match=rf"^{file}: cannot be read \(.*\); download the file again$"):
            read_array(file, 1)


@pytest.mark.slow
def test_the_real_fashion_mnist() -> None:
    """Debian's package dataset-fashion-mnist; elsewhere, the folder named by FASHION_MNIST."""
    folder = os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist")
    if not Path(folder).is_dir():
        pytest.fail(
            f"{folder} is absent; apt-get install dataset-fashion-mnist, or set FASHION_MNIST to the folder"
        )
    config = ImageData("idx", 1, 28, 10, path=folder, training_examples=5000, validation_examples=1000)
    manifest = load(config, CPU, 1).manifest
    assert known_set(manifest) is FASHION_MNIST
    assert list(IMAGES_TASK.data.contradictions(config, manifest)) == []


def test_the_list_divides_all_digits_by_class_as_the_stratified_choice_does() -> None:
    pinned, labels = digits._pinned(), digits_table()[:, -1].astype(np.int64)
    sizes = {"training": 200, "validation": 400, "test": 1197}
    assert {name: len(indices) for name, indices in pinned.items()} == sizes
    assert sorted(np.concatenate(list(pinned.values()))) == list(range(1797))
    for indices in pinned.values():
        expected = np.bincount(labels) * len(indices) / 1797
        assert np.abs(np.bincount(labels[indices]) - expected).max() < 2
    assert stratified(labels, 400).tolist() == pinned["validation"].tolist()


def test_the_preset_shows_the_known_digits() -> None:
    config = load_preset("digits").data
    manifest = load(config, CPU, 1).manifest
    assert known_set(manifest) is known_sets.DIGITS
    assert list(IMAGES_TASK.data.contradictions(config, manifest)) == []
    assert (manifest["size"], manifest["training_examples_per_class"]) == (32, [19, 21])


@pytest.mark.contract
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "is not installed; remedy: pip install scikit-learn"),
        (b"\x1f\x8b\x08 no archive", "digits.csv.gz cannot be read: "),
        (gzip.compress(b"0,1,x\n", mtime=0), "digits.csv.gz cannot be read: "),
        (gzip.compress(b"", mtime=0), "digits: no images"),
        (
            gzip.compress(b"0," * 64 + b"1\n" + b"1," * 64 + b"0\n", mtime=0),
            "SHA-256 .* instead of eda20a8.*; ins",
        ),
    ],
)
def test_a_library_without_the_pinned_digits_is_refused(
    content: bytes | None, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No library, two damaged files, one without images, and one with other images."""
    spec = ModuleSpec("sklearn", None, origin=str(tmp_path / "__init__.py")) if content is not None else None
    monkeypatch.setattr(digits, "find_spec", lambda name: spec)
    file = tmp_path / "datasets" / "data" / "digits.csv.gz"
    file.parent.mkdir(parents=True)
    file.write_bytes(content or b"")
    with pytest.raises(DataError, match=reason):
        load(DIGITS, CPU, 1)
