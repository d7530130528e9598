"""Crops and flips of a block, against one image at a time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from aiperf.data.augment import Augmentation, augmentation


def one_by_one(images: Tensor, numbers: Tensor, draws: Tensor, how: Augmentation) -> Tensor:
    size = images.shape[1]
    shown = []
    for number, (row, column, side) in zip(numbers.tolist(), draws.tolist()):
        image = images[number].flip(1) if how.flip and side < 0.5 else images[number]
        wide = torch.zeros(size + 2 * how.pad, size + 2 * how.pad, images.shape[3], dtype=images.dtype)
        wide[how.pad : how.pad + size, how.pad : how.pad + size] = image
        top, left = (int(draw * (2 * how.pad + 1)) for draw in (row, column))
        shown.append(wide[top : top + size, left : left + size])
    return torch.stack(shown)


@pytest.mark.parametrize("how", [Augmentation(2), Augmentation(1, flip=True), Augmentation(0, flip=True)])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_block_is_moved_as_each_image_would_be(how: Augmentation, channels: int) -> None:
    source = torch.Generator().manual_seed(1)
    images = torch.randint(1, 256, (5, 6, 6, channels), dtype=torch.uint8, generator=source)
    numbers = torch.randint(5, (200,), generator=source)
    draws = torch.rand(200, 3, generator=source)
    expected = one_by_one(images, numbers, draws, how)
    assert torch.equal(how.crop(how.border(images), numbers, draws), expected)
    assert len({shown.numpy().tobytes() for shown in expected}) > 5


def test_all_places_are_reached_and_none_beyond() -> None:
    how = Augmentation(2)
    image = torch.arange(1, 37, dtype=torch.uint8).view(1, 6, 6, 1)
    ends = torch.tensor([0.0, 1 - 2**-24])  # the least and the greatest that torch.rand draws
    draws = torch.cartesian_prod(ends, ends, torch.tensor([0.5]))
    corners = how.crop(how.border(image), torch.zeros(4, dtype=torch.int64), draws)[:, :, :, 0]
    assert corners[0, 2:, 2:].tolist() == image[0, :4, :4, 0].tolist()
    assert corners[3, :4, :4].tolist() == image[0, 2:, 2:, 0].tolist()


@pytest.mark.parametrize(
    ("name", "size", "expected"),
    [
        ("none", 32, Augmentation()),
        ("shift", 32, Augmentation(2)),
        ("shift", 64, Augmentation(4)),
        ("shift", 8, Augmentation(1)),
        ("crop-flip", 32, Augmentation(4, flip=True)),
        ("crop-flip", 28, Augmentation(4, flip=True)),
    ],
)
def test_the_border_is_in_proportion_to_the_image(name: str, size: int, expected: Augmentation) -> None:
    assert augmentation(name, size) == expected
