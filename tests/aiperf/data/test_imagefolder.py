"""Class folders: what is found, and what is refused."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aiperf.config import DataConfig
from aiperf.data import file_list, folder_contents, host_share, load
from aiperf.data.file_list import scan
from tests.aiperf.data.sets import CPU, refusal
from tests.tables import ComesTo


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
