"""What every split owes to the training loop, whatever its examples come from."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import islice
from typing import Any

import pytest
import torch

from aiperf.data import Data, Split, cifar10, load, resident
from aiperf.data.texts import grid
from aiperf.tasks.images.data import ImageData
from aiperf.tasks.language.data import TextData
from tests.aiperf.data.packed.pack import packed
from tests.aiperf.data.sets import CPU, write_cifar10, write_folders, write_idx

DIGITS = ImageData("digits", 1, 32, 10, training_examples=60, validation_examples=40)
SYNTHETIC = ImageData("synthetic", 3, 16, 5, training_examples=30, validation_examples=11, test_examples=7)
KINDS = (
    "digits",
    "digits shift",
    "idx",
    "idx shift",
    "idx crop-flip",
    "cifar10 crop-flip",
    "synthetic",
    "imagefolder",
    "imagefolder resized-crop-flip",
    "packed",
    "packed resized-crop-flip",
    "synthetic-text",
    "text",
)
STILL = [kind for kind in KINDS if " " not in kind and kind != "text"]  # whose windows begin anywhere
IMAGES = [kind for kind in KINDS if "text" not in kind]


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Data]]:
    """Every kind, loaded once: of the folders the decoding processes stay."""
    root = tmp_path_factory.mktemp("sets")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cifar10, "IMAGES_A_FILE", 20)
        patch.setattr(grid, "BLOCK_BYTES", 4096)  # else half a megabyte of tiny windows is read ahead
        (root / "text").write_bytes(random.Random(1).randbytes(2000))
        configs = {
            "digits": DIGITS,
            "synthetic": SYNTHETIC,
            "synthetic-text": TextData(
                **{**asdict(SYNTHETIC), "name": "synthetic-text", "channels": 1, "classes": 256}
            ),
            "text": TextData("text", 1, 8, 256, path=str(root / "text")),
            "idx": write_idx(root / "idx"),
            "cifar10": write_cifar10(root / "cifar10", "bin", 20),
            "imagefolder": (folders := write_folders(root / "folders")),
            "packed": replace(
                folders, name="packed", path=str(packed(root / "folders", root / "packed")), size=24
            ),
        }
        found = {}
        for kind in KINDS:
            name, _, augmentation = kind.partition(" ")
            found[kind] = load(replace(configs[name], augmentation=augmentation or "none"), CPU, seed=3)
        yield found


@pytest.fixture(params=KINDS)
def data(request: pytest.FixtureRequest, sets: dict[str, Data]) -> Data:
    return sets[request.param]


@pytest.fixture(params=STILL)
def still(request: pytest.FixtureRequest, sets: dict[str, Data]) -> Data:
    """Those whose training images are shown as they are."""
    return sets[request.param]


@pytest.fixture(params=IMAGES)
def pictures(request: pytest.FixtureRequest, sets: dict[str, Data]) -> Data:
    return sets[request.param]


def known(split: Split) -> dict[bytes, tuple[int, Any]]:
    """Each image's number and label by its pixels."""
    images, labels = (torch.cat(each) for each in zip(*split.sweep(16)))
    return {image.numpy().tobytes(): each for image, each in zip(images, enumerate(labels.tolist()))}


def steps(stream: object, count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    taken = [(images.clone(), labels.clone()) for images, labels in islice(stream, count)]
    assert len(taken) == count
    return taken


def same(
    one: list[tuple[torch.Tensor, torch.Tensor]], other: list[tuple[torch.Tensor, torch.Tensor]]
) -> bool:
    return all(torch.equal(a, c) and torch.equal(b, d) for (a, b), (c, d) in zip(one, other, strict=True))


def test_a_batch_is_normalised_channels_last_and_labelled(pictures: Data) -> None:
    for images, labels in (*islice(pictures.train.stream(8, 1), 2), next(iter(pictures.test.sweep(8)))):
        assert len(images) == len(labels) <= 8
        assert images.dtype == torch.float32
        assert labels.dtype == torch.int64
        assert images.is_contiguous(memory_format=torch.channels_last)
        assert images.shape[1:] == (pictures.manifest["channels"], *[pictures.manifest["size"]] * 2)
        assert 0 <= labels.min() <= labels.max() < pictures.manifest["classes"]
        assert images.abs().max() < 6


def test_the_manifest_counts_what_the_splits_show(pictures: Data) -> None:
    for name, split in (
        ("training", pictures.train),
        ("validation", pictures.validation),
        ("test", pictures.test),
    ):
        by_class = Counter(label for _, labels in split.sweep(16) for label in labels.tolist())
        shown = [by_class[label] for label in range(pictures.manifest["classes"])]
        assert sum(shown) == split.num_examples == pictures.manifest[f"{name}_examples"]
        assert [min(shown), max(shown)] == pictures.manifest[f"{name}_examples_per_class"]


def test_no_image_is_in_two_splits(still: Data) -> None:
    found = [set(known(split)) for split in (still.train, still.validation, still.test)]
    assert sum(map(len, found)) == len(found[0] | found[1] | found[2])


def test_every_pass_is_a_permutation_with_its_labels_and_passes_run_into_one_another(still: Data) -> None:
    images_of = known(still.train)
    assert len(images_of) == still.train.num_examples
    batch_size = still.train.num_examples // 2 + 1  # divides no pass
    taken = steps(still.train.stream(batch_size, 5), 6)
    assert {len(images) for images, _ in taken} == {batch_size}
    order = [images_of[image.numpy().tobytes()] for images, _ in taken for image in images]
    assert [label for _, label in order] == torch.cat([labels for _, labels in taken]).tolist()
    passes = [order[first : first + len(images_of)] for first in range(0, len(order), len(images_of))][:3]
    assert [sorted(one) for one in passes] == [sorted(images_of.values())] * 3
    assert len({tuple(number for number, _ in one) for one in passes}) == 3


@pytest.mark.contract
def test_the_ranks_divide_each_step_evenly_and_in_order(data: Data) -> None:
    alone = steps(data.train.stream(8, 7), 9)
    shares = [steps(data.train.stream(8, 7, rank, 3), 9) for rank in range(3)]
    assert [len(labels) for (_, labels), *_ in shares] == [2, 3, 3]
    together = [
        (torch.cat([images for images, _ in parts]), torch.cat([labels for _, labels in parts]))
        for parts in zip(*shares)
    ]
    assert same(together, alone)


@pytest.mark.contract
def test_equal_seeds_show_the_same_and_others_do_not(data: Data) -> None:
    first, again, other = (steps(data.train.stream(8, seed), 6) for seed in (1, 1, 2))
    assert same(first, again)
    assert not same(first, other)


def test_streams_and_sweeps_do_not_disturb_one_another(data: Data) -> None:
    alone = steps(data.train.stream(4, 1), 6), steps(data.train.stream(4, 2), 3)
    one, two = data.train.stream(4, 1), data.train.stream(4, 2)
    begun = steps(one, 3)
    assert sum(len(labels) for _, labels in data.validation.sweep(4)) == data.validation.num_examples
    assert same(steps(two, 3), alone[1])
    assert same(begun + steps(one, 3), alone[0])


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_sweep_shows_every_image_once_over_all_ranks(data: Data, ranks: int) -> None:
    whole = torch.cat([images for images, _ in data.test.sweep(1000)])
    batches = [batch for rank in range(ranks) for batch in data.test.sweep(6, rank, ranks)]
    assert torch.equal(torch.cat([images for images, _ in batches]), whole)
    assert max(len(labels) for _, labels in batches) * ranks <= 6


def test_more_ranks_than_images_are_refused(data: Data) -> None:
    with pytest.raises(ValueError, match="a step of 2 examples leaves some of 3 ranks without examples"):
        next(data.train.stream(2, 1, 0, 3))


def test_reading_leaves_the_generator_of_the_training_alone(data: Data) -> None:
    before = torch.get_rng_state()
    steps(data.train.stream(8, 1), 2)
    list(data.validation.sweep(8))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("augmentation", ["none", "shift"])
def test_neither_block_nor_store_shows(monkeypatch: pytest.MonkeyPatch, augmentation: str) -> None:
    config = replace(DIGITS, augmentation=augmentation)
    expected = steps(load(config, CPU, 1).train.stream(7, 1), 30)
    monkeypatch.setattr(resident, "BLOCK_BYTES", 1)
    monkeypatch.setattr(resident, "NORMALISED_BYTES", 0)
    held_as_bytes = load(config, CPU, 1)
    assert same(steps(held_as_bytes.train.stream(7, 1), 30), expected)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.partition(" ")[0] in STILL and " " in kind])
def test_augmentation_moves_images_anew_each_pass_and_leaves_order_and_sweeps(
    sets: dict[str, Data], kind: str
) -> None:
    moved, still = (sets[name].train for name in (kind, kind.partition(" ")[0]))
    size = still.num_examples
    passes = steps(moved.stream(size, 1), 2)
    for (images, labels), (unmoved, expected) in zip(passes, islice(still.stream(size, 1), 2), strict=True):
        assert labels.tolist() == expected.tolist()
        differing = sum(not torch.equal(one, other) for one, other in zip(images, unmoved))
        assert differing > size / 2
    both = torch.cat([images for images, _ in passes])
    assert len({image.numpy().tobytes() for image in both}) > 1.5 * size
    assert same(list(moved.sweep(8)), list(still.sweep(8)))
