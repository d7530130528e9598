"""Generated images: different, learnable, the same for a seed, and cheap to hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from aiperf.config import DataConfig
from aiperf.data import Data, Split, load
from aiperf.errors import DataError

CPU = torch.device("cpu")
CONFIG = DataConfig("synthetic", 3, 16, 5, training_examples=500, validation_examples=50, test_examples=200)


def whole(split: Split) -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = zip(*split.sweep(64))
    return torch.cat(images), torch.cat(labels)


def test_it_can_be_learnt_and_what_is_learnt_holds_on_the_test_images() -> None:
    data = load(CONFIG, CPU, 1)
    seen, labels = whole(data.train)
    weights = torch.linalg.lstsq(
        seen.flatten(1), torch.nn.functional.one_hot(labels, 5).float(), driver="gelsd"
    )
    tested, expected = whole(data.test)
    right = (tested.flatten(1) @ weights.solution).argmax(1) == expected
    assert right.float().mean() > 0.9


def test_images_are_white_on_the_whole_and_all_different() -> None:
    images = torch.cat([whole(split)[0] for split in parts(load(CONFIG, CPU, 1))])
    assert abs(images.mean().item()) < 0.1
    assert abs(images.std().item() - 1) < 0.1
    assert len({image.numpy().tobytes() for image in images}) == 750


def test_the_seed_makes_the_images_and_their_fingerprint() -> None:
    one, again, other = (load(CONFIG, CPU, seed) for seed in (1, 1, 2))
    assert one.manifest == again.manifest
    assert one.manifest["synthetic"] is True
    assert one.manifest["sha256"] != other.manifest["sha256"]
    assert torch.equal(whole(one.test)[0], whole(again.test)[0])
    assert not torch.equal(whole(one.test)[0], whole(other.test)[0])


def test_a_set_of_the_size_of_imagenet_holds_megabytes() -> None:
    config = DataConfig(
        "synthetic",
        3,
        224,
        1000,
        training_examples=1_231_167,
        validation_examples=50_000,
        test_examples=50_000,
    )
    data = load(config, CPU, 1)
    held = {
        tensor.data_ptr(): tensor.nbytes
        for split in parts(data)
        for tensor in vars(split).values()
        if isinstance(tensor, torch.Tensor)
    }
    assert sum(held.values()) < 64 << 20
    images, _ = next(data.train.stream(4, 1))
    assert images.shape == (4, 3, 224, 224)
    assert data.manifest["training_examples_per_class"] == [1231, 1232]


def test_any_shape_will_do() -> None:
    images, _ = next(load(replace(CONFIG, channels=2, size=7), CPU, 1).train.stream(3, 1))
    assert images.shape == (3, 2, 7, 7)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            {"test_examples": 0},
            (
                "synthetic data: data.training_examples, data.validation_examples and data.test_examples "
                "must all be set in the configuration"
            ),
        ),
        (
            {"augmentation": "shift"},
            (
                "synthetic data: data.augmentation is 'shift', but generated images are not augmented; set "
                "it to 'none'"
            ),
        ),
    ],
)
def test_what_it_cannot_do_is_refused(changed: dict[str, object], expected: str) -> None:
    with pytest.raises(DataError) as refused:
        load(replace(CONFIG, **changed), CPU, 1)
    assert str(refused.value) == expected


def parts(data: Data) -> tuple[Split, Split, Split]:
    return data.train, data.validation, data.test
