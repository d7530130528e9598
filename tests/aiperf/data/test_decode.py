"""The square of a picture that is shown, and crops and flips of a block of them."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from aiperf.data.decode import check_file, decode, decode_whole, random_box
from aiperf.data.resident import Augmentation, augmentation
from tests.aiperf.data.sets import pictures, refused_by
from tests.tables import ComesTo

SIDES = st.integers(1, 4000)


def picture(width: int, height: int) -> Image.Image:
    return Image.fromarray(pictures(1, 12, 3)[0]).resize((width, height), Image.Resampling.BICUBIC)


@given(SIDES, SIDES, st.integers())
def test_a_random_crop_lies_inside(width: int, height: int, seed: int) -> None:
    left, upper, right, lower = random_box(random.Random(seed), width, height)
    assert 0 <= left < right <= width
    assert 0 <= upper < lower <= height


def test_random_crops_are_of_the_published_areas_and_aspects() -> None:
    source = random.Random(1)
    boxes = np.array([random_box(source, 500, 400) for _ in range(2000)])
    wide, high = (boxes[:, 2] - boxes[:, 0]), (boxes[:, 3] - boxes[:, 1])
    areas, aspects = wide * high / (500 * 400), wide / high
    assert 0.079 < areas.min() < 0.1
    assert 0.9 < areas.max() <= 1
    assert 0.74 < aspects.min() < 0.78
    assert 1.28 < aspects.max() < 1.35
    assert boxes[:, :2].min() == 0
    assert boxes[:, 2].max() == 500


def test_evaluation_shows_what_resizing_and_then_cropping_shows(tmp_path: Path) -> None:
    file = tmp_path / "picture.png"
    picture(510, 384).save(file)
    with Image.open(file) as image:
        resized = image.resize((340, 256), Image.Resampling.BILINEAR)
    expected = np.asarray(resized.crop((58, 16, 58 + 224, 16 + 224))).astype(int)
    shown = decode(str(file), channels=3, size=224, draws="").astype(int)
    assert np.abs(shown - expected).max() <= 1


def test_training_shows_another_crop_for_other_draws_and_sometimes_its_mirror(tmp_path: Path) -> None:
    file = tmp_path / "picture.png"
    picture(60, 50).save(file)
    shown = {draws: decode(str(file), 3, 16, draws).tobytes() for draws in map(str, range(20))}
    assert len(set(shown.values())) == 20
    assert shown["7"] == decode(str(file), 3, 16, "7").tobytes()

    half = Image.new("L", (64, 64))
    half.paste(255, (32, 0, 64, 64))
    half.save(file)
    brighter_right = [
        float(crop[:, 8:].mean()) > float(crop[:, :8].mean())
        for crop in (decode(str(file), 1, 16, str(number)).astype(float) for number in range(200))
        if crop.std() > 0
    ]
    assert 0.35 < np.mean(brighter_right) < 0.65


def test_a_draft_is_close_to_the_whole_and_only_of_jpeg_crops_with_pixels_to_spare(tmp_path: Path) -> None:
    jpeg, png = tmp_path / "picture.jpg", tmp_path / "picture.png"
    picture(400, 300).save(jpeg, quality=95)
    picture(400, 300).save(png)
    for draws in map(str, range(12)):
        box = random_box(random.Random(draws), 400, 300)
        spare = min(box[2] - box[0], box[3] - box[1]) / 100
        whole, draft = (decode(str(jpeg), 3, 100, draws, way).astype(int) for way in (False, True))
        assert np.array_equal(whole, draft) == (spare < 2), spare
        assert np.abs(whole - draft).mean() < 2
        assert np.array_equal(decode(str(png), 3, 100, draws, True), decode(str(png), 3, 100, draws))
    assert np.array_equal(decode(str(jpeg), 3, 100, "", True), decode(str(jpeg), 3, 100, ""))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_kind_of_8_bit_picture_is_shown(tmp_path: Path, mode: str, channels: int) -> None:
    file = tmp_path / ("picture.jpg" if mode == "CMYK" else "picture.png")
    picture(40, 30).convert(mode).save(file)
    check_file(file)
    assert decode(str(file), channels, 16, "").shape == (16, 16, channels)


def test_bytes_after_the_end_of_a_picture_do_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "picture.jpg"
    picture(40, 30).save(file)
    with file.open("ab") as end:
        end.write(b"\0" * 100)
    check_file(file)


def test_what_cannot_be_decoded_is_refused_and_is_not_blamed_for_what_lies_outside_it(
    here: Path, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    picture(200, 150).save("whole.jpg")
    Image.fromarray(np.zeros((9, 9), np.uint16)).save("deep.png")
    Path("text.jpg").write_text("no picture")
    Path("half.jpg").write_bytes((whole := Path("whole.jpg").read_bytes())[: len(whole) // 2])
    picture(9, 9).save("gif.jpg", format="GIF")
    Path("empty.jpg").touch()

    def refused(name: str) -> str:
        return refused_by(check_file, Path(name))

    def not_blamed(raised: Exception) -> set[str]:
        with monkeypatch.context() as patch:
            patch.setattr(Image, "open", Mock(side_effect=raised))
            return {refused("whole.jpg"), refused_by(decode_whole, "whole.jpg", 3, 8)}

    names = {"refused": refused, "not_blamed": not_blamed, "errno": errno}
    comes_to_what_was_read("refused_pictures.txt", names)


def test_a_palette_with_transparency_is_shown_as_its_colours(tmp_path: Path) -> None:
    """Without Pillow's warning, which each decoding process would print; here every warning is an error."""
    image = picture(8, 8).quantize(16)
    image.save(path := tmp_path / "a.png", transparency=bytes(range(16)))
    expected = np.asarray(image.convert("RGB"))
    assert np.array_equal(decode_whole(str(path), 3, 8), expected)


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


def test_the_border_is_in_proportion_to_the_image(comes_to_what_was_read: ComesTo) -> None:
    comes_to_what_was_read("augmentations.txt", {"augmentation": augmentation})
