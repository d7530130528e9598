"""Images in files, idx and cifar10, in class folders, and scikit-learn's digits: found, shown as they are, or
refused by name."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import struct
import tempfile
from collections.abc import Callable
from dataclasses import replace
from importlib.machinery import ModuleSpec
from io import BytesIO
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
import torch
from PIL import Image

from aiperf.config import DataConfig, load_preset
from aiperf.data import cifar10, digits, file_list, folder_contents, host_share, load
from aiperf.data.file_list import scan
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


def test_the_manifest_fingerprints_the_list_of_all_files(config: DataConfig) -> None:
    root = Path(config.path)
    lines = [
        f"{folder.name}\t{file.name}\t{file.stat().st_size}\n"
        for part in ("train", "val")
        for folder in sorted((root / part).iterdir())
        for file in sorted(folder.iterdir())
    ]
    manifest = load(config, CPU, 1).manifest
    assert manifest["sha256"] == hashlib.sha256("".join(lines).encode()).hexdigest()
    assert (manifest["official_training_examples"], manifest["test_examples_per_class"]) == (36, [5, 5])


def test_a_test_folder_without_classes_is_passed_over_for_val(config: DataConfig) -> None:
    root = Path(config.path)
    (root / "test/.thumbnails").mkdir(parents=True)
    shutil.copy(root / "val/class0/0.jpg", root / "test/ILSVRC2012_test_1.JPEG")
    assert load(config, CPU, 1).test.num_examples == 15
    (root / "test/ILSVRC2012_test_1.JPEG").unlink()
    for label in range(3):
        shutil.copytree(root / f"val/class{label}", root / f"test/class{label}")
        (root / f"test/class{label}/0.jpg").unlink()
    assert load(config, CPU, 1).test.num_examples == 12


def test_images_are_taken_at_any_depth_each_once_and_the_rest_is_reported(config: DataConfig) -> None:
    """The manifest of a flat folder is as before; deeper images come in the order of their paths."""
    root, whole = Path(config.path), load(config, CPU, 1)
    assert whole.note == "train/ 36 of 36 images. val/ 15 of 15 images"
    own, other = root / "train/class0", root / "train/class1"
    (other / "images").mkdir()
    for file in sorted(other.glob("*.*"))[:9]:
        file.rename(other / "images" / file.name)
    (own / "0.jpg").rename(own / "00.jpg")
    (own / "0.jpg").symlink_to("00.jpg")
    os.link(own / "1.jpg", own / "1b.jpg")
    (own / "again").symlink_to("../class0")
    shutil.copytree(own, own / ".thumbnails", symlinks=True)
    for name in (".DS_Store", "._1.jpg", "1.jpg~", "1.webp", "Thumbs.db", "class0_boxes.txt"):
        (own / name).write_bytes(b"no image")
    shutil.copy(own / "1.jpg", root / "train/lost.jpg")
    (root / "train/.cache").mkdir()
    os.mkfifo(own / "pipe.jpg")  # to open it would wait for ever
    data = load(config, CPU, 1)
    assert data.manifest["training_examples_per_class"] == whole.manifest["training_examples_per_class"]
    assert data.note == (
        "train/ 36 of 40 images; 2 hidden files, 2 hidden folders, 1 editor's backup, 3 links to what is "
        "read already, 4 files of other kinds, 1 image outside the class folders left out. val/ 15 of 15 "
        "images"
    )
    names = scan(root / "train").names.tolist()
    assert names[:3] + names[14:16] == [b"00.jpg", b"1.jpg", b"10.jpg", b"9.jpg", b"images/0.jpg"]


def tiny_imagenet(root: Path) -> None:
    """As it comes: val/images with a list of the classes, and test/images, whose classes nobody knows."""
    for folder in sorted((root / "val").iterdir()):
        shutil.move(folder, root / "val/images" / folder.name)
    shutil.copytree(root / "val/images/class0", root / "test/images")
    (root / "val/val_annotations.txt").write_text("class0_0.jpg\tclass0\t0\t32\t44\t62\n")


def one_class(root: Path) -> None:
    for part in ("train", "val"):
        for label in (1, 2):
            shutil.rmtree(root / part / f"class{label}")


def linked(root: Path) -> None:
    shutil.rmtree(root / "val")
    (root / "val").symlink_to("train")


def emptied(root: Path) -> None:
    for file in (root / "val/class2").iterdir():
        file.unlink()


def linking(link: str, target: str, other: str) -> Callable[[Path], None]:
    """By which an image would be in two parts or of two classes; without a target it is a hard link."""

    def link_them(root: Path) -> None:
        own = root / link
        if own.is_dir():
            shutil.rmtree(own)
        own.unlink(missing_ok=True)
        if target:
            own.symlink_to(target)
        else:
            own.hardlink_to(root / other)

    return link_them


def test_bad_folders_are_refused(refused: Callable[..., str], comes_to_what_was_read: ComesTo) -> None:
    comes_to_what_was_read("refused_folders.txt", {**globals(), "refused": refused})


def test_a_folder_that_may_not_be_read_is_refused(
    written: DataConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, scandir = f"{written.path}/train/class0", os.scandir

    def refuse(folder: Path) -> Any:
        if str(folder) == closed:
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(folder)

    monkeypatch.setattr(folder_contents.os, "scandir", refuse)
    assert refusal(written) == f"{closed}: Permission denied; make it readable"


def test_of_large_sets_a_spread_sample_is_opened(config: DataConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_list, "CHECKED_FILES", 4)
    opened: list[str] = []
    monkeypatch.setattr(
        file_list, "check_file", lambda path: opened.append(f"{path.parent.name}/{path.name}")
    )
    load(config, CPU, 1)
    of_train = ["class0/0.jpg", "class0/9.jpg", "class1/9.jpg", "class2/9.jpg"]
    of_val = ["class0/0.jpg", "class0/4.png", "class1/4.png", "class2/4.png"]
    assert sorted(opened) == sorted([*of_train, *of_val])


def test_all_damaged_files_are_named_up_to_a_number(config: DataConfig) -> None:
    files = sorted(Path(config.path, "train").glob("class*/*"))[:7]
    for file in files:
        file.write_text("gone bad")
    refused = refusal(config)
    assert [str(file) in refused for file in files] == [True] * 5 + [False] * 2
    assert refused.endswith("replace or remove it … and 2 more")


def test_decoding_takes_the_cores_that_training_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_share.os, "cpu_count", lambda: 64)
    for bound, local_ranks, expected in ((64, 1, 63), (64, 8, 7), (12, 8, 11), (1, 8, 1)):
        monkeypatch.setattr(host_share.os, "sched_getaffinity", lambda _, cores=bound: range(cores))
        assert host_share.spare_cores(local_ranks) == expected
