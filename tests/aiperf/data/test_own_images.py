"""What a run of somebody's own images needs to know, and which of them are held back for validation."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from aiperf.config import DataConfig, load_preset, with_overrides
from aiperf.data import load
from aiperf.data.file_list import FileList
from aiperf.data.image_files import look
from aiperf.data.imagefolder import list_files
from aiperf.data.own_images import MOST_PASSES, inferred
from aiperf.data.parts import Indices, PartFacts, SetFacts, stratified, take_validation
from aiperf.errors import DataError
from aiperf.tasks.images.data import ImageData
from tests.aiperf.data.sets import CPU, refused_by, write_cifar10, write_folders, write_idx, write_undivided
from tests.tables import ComesTo

KEYS = [f"data.{key}" for key in ("name", "channels", "size", "classes", "validation_examples")]


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (write_idx, ("idx", 1, 12, 4, 10, [60, 120, 240])),
        (write_folders, ("imagefolder", 3, 24, 3, 9, [60, 120, 240])),  # of shorter sides of 24 to 30
        (write_undivided, ("imagefolder", 3, 24, 3, 7, [60, 120, 240])),
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


def test_a_set_without_parts_is_divided_by_the_names_of_its_files(tmp_path: Path) -> None:
    """The same on every machine, whatever order its file system has."""
    write_undivided(tmp_path)
    training, test = list_files(tmp_path)

    def names(part: FileList) -> set[str]:
        return {str(Path(part.path(index)).relative_to(tmp_path)) for index in range(len(part.names))}

    kept = {f"class{label}/{name}" for label in range(3) for name in ("0.jpg", "3.JPEG")}
    assert names(test) == kept
    assert names(training) | kept == {str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*")}
    assert (len(names(training)), names(training) & kept) == (30, set())
    settings = {**inferred(look(tmp_path), {}), "data.path": str(tmp_path)}
    assert load(with_overrides(load_preset("own"), settings).data, CPU, 1).note == (
        f"{tmp_path.name}/ 30 of 30 images. Kept for the test by a hash of the names: 6 images, 17 %"
    )
    for file in sorted((tmp_path / "class1").iterdir())[2:]:
        file.unlink()
    with pytest.raises(DataError, match="class1: holds 2 images; at least 3 are needed"):
        look(tmp_path)


def test_of_a_folder_of_large_grey_images(tmp_path: Path) -> None:
    write_folders(tmp_path)
    for number, file in enumerate(sorted(path for path in tmp_path.rglob("*.*") if path.is_file())):
        file.unlink()
        Image.new("L", (500, 375), number).save(file.with_suffix(".png"))
    found = inferred(look(tmp_path), {})
    assert (found["data.channels"], found["data.size"]) == (1, 64)


def found_of(by_class: list[int]) -> SetFacts:
    labels = np.repeat(np.arange(len(by_class)), by_class)
    part = PartFacts("idx", "files", labels, (1,), ("none",))
    return SetFacts(part, part, 1, 28)


FOUR = np.repeat(np.arange(4), 25)
"""Labels of a hundred images in four classes."""


def held_back(by_class: list[int], stated: dict[str, int]) -> tuple[int, list[int]]:
    """How many images, and the epochs: fewer images are shown oftener."""
    found = inferred(found_of(by_class), stated)
    return found["data.validation_examples"], found["training.epochs"]


def test_what_is_inferred_of_a_set_and_what_is_refused(
    tmp_path: Path, comes_to_what_was_read: ComesTo
) -> None:
    """A tenth is held back, within bounds, unless it is stated; then folders that hold no set of images, and
    sets that are too small to be divided."""

    def looked_at(names: list[str], path: str = "") -> str:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).mkdir(parents=True) if name.endswith("/") else (folder / name).touch()
        return refused_by(look, folder / path).replace(str(folder), "…")

    names = {**globals(), "take_validation": take_validation, "looked_at": looked_at}
    comes_to_what_was_read("own_images.txt", names)


@given(st.lists(st.integers(2, 400), min_size=2, max_size=5))
@settings(max_examples=30)
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


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6).filter(any), st.floats(0, 1))
def test_every_class_gets_its_share_within_one(a_class: list[int], part: float) -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(a_class)), a_class))
    wanted = round(part * len(labels))
    chosen = stratified(labels, wanted)
    assert len(chosen) == wanted
    assert (np.diff(chosen) > 0).all()
    share = np.array(a_class) * wanted / len(labels)
    assert np.abs(np.bincount(labels[chosen], minlength=len(a_class)) - share).max() < 1


def of_parts(training: int, validation: int) -> DataConfig:
    return ImageData("idx", 1, 8, 4, training_examples=training, validation_examples=validation)


def test_validation_is_the_same_however_many_images_are_trained_on() -> None:
    labels = np.repeat(np.arange(4), 25)
    training, validation = take_validation(labels, of_parts(0, 20), "here")
    few, same = take_validation(labels, of_parts(8, 20), "here")
    assert same.tolist() == validation.tolist()
    assert set(few) < set(training)
    assert sorted([*training, *validation]) == list(range(100))
    assert np.bincount(labels[validation]).tolist() == [5, 5, 5, 5]
    assert (np.diff(np.flatnonzero(labels[validation] == 0)) > 0).all()


def refused_split(labels: Indices, training: int, validation: int) -> str:
    return refused_by(take_validation, labels, of_parts(training, validation), "here", "abc")


@given(st.lists(st.integers(1, 40), min_size=3, max_size=3), st.integers(0, 40), st.integers(1, 40))
def test_what_is_advised_for_a_small_class_can_be_followed(
    by_class: list[int], training: int, validation: int
) -> None:
    """One change of the numbers is enough; a class with one image needs more images."""
    labels = np.repeat(np.arange(3), by_class)
    told = refused_split(labels, training, validation)
    if told and "cannot give" not in told:
        assert ("has one training image" in told) == (1 in by_class)
        if 1 not in by_class:
            advised = {key: int(number) for key, number in re.findall(r"data\.(\w+)_examples = (\d+)", told)}
            assert advised
            assert refused_split(labels, **{"training": training, "validation": validation} | advised) == ""
