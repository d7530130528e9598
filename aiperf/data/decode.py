"""One JPEG or PNG file: whether it can be read, and the square of it that is shown."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from aiperf.errors import DataError
from aiperf.host.package_clash import foreign_library
from aiperf.os_error import MORE_MEMORY, is_of_system, unreadable

if TYPE_CHECKING:
    from PIL.Image import Image

# The customary evaluation crop: 224 out of a shorter side of 256 (Krizhevsky et al., NIPS 2012).
EVALUATED_SHARE = 224 / 256
# Szegedy et al., "Going deeper with convolutions", CVPR 2015, section 6: area and aspect of the crops.
CROP_AREA = (0.08, 1.0)
CROP_ASPECT = (3 / 4, 4 / 3)
CROP_TRIES = 10
"""Boxes that are drawn before the centre is taken, as in the reference training of torchvision."""
# At which libjpeg decodes faster, as divisors.
DRAFT_SCALES = (8, 4, 2)
# Pillow's name for the pixels that are shown, by channels.
MODES = {1: "L", 3: "RGB"}
# What converts to 8 bits a channel without loss of range; 16-bit PNGs would be clipped.
READABLE_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")
GREY_MODES = ("1", "L", "LA")
JPEG_END = b"\xff\xd9"
PNG_END = b"IEND\xaeB`\x82"
"""Last bytes of a whole file: one that was cut off, as by a broken download, does not end so."""

Box = tuple[float, float, float, float]
"""Left, upper, right, lower, in pixels of the file."""


def check_file(path: Path) -> None:
    """Raises DataError for a file that cannot be decoded: by its header and end, in doubt by decoding it."""
    with _refusing(path):
        with path.open("rb") as file:
            file.seek(-min(len(PNG_END), path.stat().st_size), 2)
            end = file.read()
        with _open(path) as image:
            if not end.endswith((JPEG_END, PNG_END)):
                image.load()


def header(path: Path) -> tuple[bool, int, int]:
    """Whether a file is grey, its width and height. Raises DataError for one that cannot be read."""
    with _refusing(path), _open(path) as image:
        return image.mode in GREY_MODES, *image.size


def decode(path: str, channels: int, size: int, draws: str, draft: bool = False) -> NDArray[np.uint8]:
    """Bytes (size, size, channels): the evaluation crop, or what the seed `draws` crops and flips.

    With `draft` a JPEG is decoded at the least scale at which the random crop has `size` pixels or more.
    Raises what Pillow raises; `refusal` makes a line of it.
    """
    from PIL.Image import Resampling, Transpose

    flip = False
    with _open(path) as file:
        if draws:
            source = random.Random(draws)
            box = random_box(source, *file.size)
            flip = source.random() < 0.5
            if draft:
                box = _drafted(file, box, size)
        else:
            box = evaluation_box(*file.size)
        image = _pixels(file, channels)
    shown = image.resize((size, size), Resampling.BILINEAR, box)
    if flip:
        shown = shown.transpose(Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(shown).reshape(size, size, channels)


def decode_all(path: Path, remedy: str) -> NDArray[np.uint8]:
    """All pixels of a file, (height, width, 3). Raises DataError with that remedy for a damaged file."""
    with _refusing(path, remedy), _open(path) as image:
        return np.asarray(_pixels(image, 3))


def decode_whole(path: str, channels: int, side: int) -> NDArray[np.uint8]:
    """Bytes (side, side, channels): the centred square of the shorter side, in one step. Raises DataError."""
    from PIL.Image import Resampling

    remedy = "replace it; without it, all shards must be packed again into another folder"
    with _refusing(path, remedy), _open(path) as file:
        image = _pixels(file, channels)
    box = centred_box(*image.size)
    return np.asarray(image.resize((side, side), Resampling.BILINEAR, box)).reshape(side, side, channels)


def centred_box(width: int, height: int, share: float = 1.0) -> Box:
    """The centred square of this share of the shorter side."""
    side = min(width, height) * share
    left, upper = (width - side) / 2, (height - side) / 2
    return left, upper, left + side, upper + side


def evaluation_box(width: int, height: int) -> Box:
    """The centred square of 224/256 of the shorter side.

    Scaled to `size` in one go it shows what resizing the shorter side to size · 256/224 and then
    cropping the centre shows.
    """
    return centred_box(width, height, EVALUATED_SHARE)


def random_box(source: random.Random, width: int, height: int) -> Box:
    """A crop of random area and aspect; if none fits, the largest centred square."""
    for _ in range(CROP_TRIES):
        area = width * height * source.uniform(*CROP_AREA)
        aspect = CROP_ASPECT[0] * (CROP_ASPECT[1] / CROP_ASPECT[0]) ** source.random()
        wide, high = round((area * aspect) ** 0.5), round((area / aspect) ** 0.5)
        if 0 < wide <= width and 0 < high <= height:
            left, upper = source.randint(0, width - wide), source.randint(0, height - high)
            return left, upper, left + wide, upper + high
    side = min(width, height)
    left, upper = (width - side) // 2, (height - side) // 2
    return left, upper, left + side, upper + side


@contextmanager
def _refusing(path: str | Path, remedy: str = "replace or remove it") -> Iterator[None]:
    """A context that turns whatever Pillow meets in a damaged file into a DataError with this remedy."""
    try:
        yield
    except Exception as error:
        raise DataError(refusal(str(path), error, remedy)) from None


def refusal(path: str, error: Exception, remedy: str = "replace or remove it") -> str:
    """The one line about a file that could not be decoded. It blames the file only if the system could read
    it and Pillow can decode others."""
    if isinstance(error, OSError) and is_of_system(error):
        return unreadable(error, path, otherwise="put it back")
    if isinstance(error, MemoryError):
        return f"{path}: there is not enough memory to decode it; {MORE_MEMORY}"
    if fault := pillow_fault():
        return fault
    if _is_empty(path):
        return f"{path}: is empty; {remedy}"
    if type(error).__name__ == "UnidentifiedImageError":
        return f"{path}: is neither a JPEG nor a PNG file; {remedy}"
    reason = str(error).replace(path, "it").replace("\n", " ")
    return f"{path}: not a readable JPEG or PNG ({type(error).__name__}: {reason}); {remedy}"


def _is_empty(path: str) -> bool:
    """Whether a file has no bytes; also False if it does not exist any more."""
    try:
        return os.stat(path).st_size == 0
    except OSError:  # removed since it was read
        return False


def decoder_name() -> str:
    """Names the library that decodes, with what its pixels may depend on."""
    import PIL
    from PIL import features

    turbo = features.version_feature("libjpeg_turbo") if features.check_feature("libjpeg_turbo") else None
    jpeg = f"libjpeg-turbo {turbo}" if turbo else f"libjpeg {features.version_codec('jpg')}"
    return f"Pillow {PIL.__version__}, {jpeg}"


def pillow_fault() -> str:
    """Why Pillow cannot decode any JPEG and PNG file in this process, in one line; empty if it can."""
    try:
        from PIL import Image

        for form in ("JPEG", "PNG"):
            Image.new("L", (8, 8)).save(written := BytesIO(), form)
            Image.open(written).load()
    except Exception as error:  # whatever a broken installation raises
        reason = str(error).replace("\n", " ")
        return f"Pillow cannot be used ({type(error).__name__}: {reason}); {_pillow_remedy()}"
    return ""


def _pillow_remedy() -> str:
    """A folder of PYTHONPATH comes before the environment, so a broken Pillow in it must go."""
    foreign = foreign_library("PIL")
    return foreign.remedy if foreign else "install it again: pip install --force-reinstall Pillow"


def _drafted(file: Image, box: Box, size: int) -> Box:
    """Sets a JPEG to be decoded at 1/2, 1/4 or 1/8, if the crop keeps `size` pixels, and returns the crop
    there. libjpeg then computes fewer pixels from the same coefficients."""
    left, upper, right, lower = box
    fits = min(right - left, lower - upper) / size
    scale = next((scale for scale in DRAFT_SCALES if scale <= fits), 1)
    width, height = file.size
    if scale == 1 or file.draft(None, (width // scale, height // scale)) is None:
        return box
    return left / scale, upper / scale, right / scale, lower / scale


def _pixels(file: Image, channels: int) -> Image:
    """Decodes a file to the mode in which its pixels are shown: grey or RGB, a byte per channel."""
    file.info.pop("transparency", None)  # it is not shown, and Pillow would warn of it in every process
    if file.mode == MODES[channels]:
        file.load()  # `convert` would copy it
        return file
    return file.convert(MODES[channels])


def _open(path: str | Path) -> Image:
    """Opens a file by its header alone. Raises what Pillow raises, and ValueError for more than 8 bits per
    channel."""
    from PIL import Image

    image = Image.open(path, formats=("JPEG", "PNG"))
    if image.mode not in READABLE_MODES:
        image.close()
        raise ValueError(f"its pixels are of mode {image.mode}, not 8 bits per channel")
    return image
