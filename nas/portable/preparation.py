"""How an example becomes what a network reads: as Python for an exported file, and as metadata of ONNX.

With other steps a network answers far worse than in its run: with the nearest pixel instead of bilinear
scaling, one for the digits fell from 97 to 27 % right answers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from math import isfinite

from nas.frozen import frozen


@frozen
class Preparation:
    """The steps from an example to the input of a network; a record names its class."""

    def python(self) -> str:
        """The function `prepare` of the exported file."""
        raise NotImplementedError

    @property
    def texts(self) -> Mapping[str, str]:
        """The same as names and texts; numbers are JSON."""
        raise NotImplementedError


@frozen
class TextPreparation(Preparation):
    """Bytes, each of which is a symbol. Raises ValueError for fewer than one position."""

    positions: int
    """The most bytes that a network reads at once."""

    def __post_init__(self) -> None:
        if self.positions < 1:
            raise ValueError(f"TextPreparation: {self.positions} positions")

    def python(self) -> str:
        return TEXT.format(positions=self.positions)

    @property
    def texts(self) -> Mapping[str, str]:
        return {
            "prepare.symbols": "bytes as whole numbers from 0 to 255",
            "prepare.positions": str(self.positions),
        }


@frozen
class ImagePreparation(Preparation):
    """Pixels as bytes from 0 to 255, scaled bilinearly with antialiasing and rounded, less the mean, over the
    deviation: of square images in an array, or of the centred square of those in files.

    Raises ValueError for numbers that no preparation has: a deviation that is not positive, a share above 1,
    or mean and deviation of different lengths.
    """

    size: int
    """Side of the square that the network reads, in pixels."""
    mean: tuple[float, ...]
    """By channel, of bytes."""
    deviation: tuple[float, ...]
    """By channel, of bytes."""
    crop: float = 0.0
    """Side of the centred square of an image in a file, as a share of the shorter side; 0 of images in an
    array."""
    packed: int = 0
    """Side in pixels to which the whole centred square is scaled first, as in packed images; 0: it is not."""

    def __post_init__(self) -> None:
        channels, sizes = len(self.mean), self.size > 0 and self.packed >= 0
        is_number = all(isfinite(mean) for mean in self.mean) and all(
            isfinite(each) and each > 0 for each in self.deviation
        )
        if not (is_number and sizes and channels == len(self.deviation) > 0 and 0 <= self.crop <= 1):
            raise ValueError(f"{self!r:.200} cannot be")
        if self.crop and channels not in MODES:
            raise ValueError(f"ImagePreparation: {channels} channels; image files have 1 or 3")

    def python(self) -> str:
        channels, size = len(self.mean), self.size
        numbers = {"size": size, "channels": channels, "mean": [*self.mean], "deviation": [*self.deviation]}
        if not self.crop:
            return ARRAYS.format(**numbers)
        steps = ONE_STEP.format(crop=self.crop, size=size)
        if self.packed:
            edge = round(self.packed * self.crop)
            first = (self.packed - edge) // 2
            corners = first, first, first + edge, first + edge
            steps = TWO_STEPS.format(packed=self.packed, corners=corners, size=size)
        return FILES.format(**numbers, mode=MODES[channels], steps=steps)

    @property
    def texts(self) -> Mapping[str, str]:
        steps = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            "prepare.pixels": "bytes from 0 to 255",
            "prepare.interpolation": INTERPOLATION,
            **{f"prepare.{name}": json.dumps(value) for name, value in steps.items() if value},
            "prepare.normalisation": "(pixel - mean) / deviation, by channel",
        }


MODES = {1: "L", 3: "RGB"}
"""Pillow's names for pixels, by channels."""
INTERPOLATION = "bilinear with antialiasing (Pillow's BILINEAR), rounded to bytes"
"""How pixels are scaled, as the metadata of ONNX say it."""
NORMALISED = """\
    mean, deviation = (torch.tensor(each).view(-1, 1, 1) for each in ({mean}, {deviation}))
"""
"""Lines of `prepare` that both forms for images share; {mean} and {deviation} are lists, one number per
channel."""
ARRAYS = (
    '''\
def prepare(images: Tensor) -> Tensor:
    """Square images (batch × side × side × {channels}), bytes from 0 to 255, as the network reads them
    (batch × {channels} × {size} × {size}): scaled bilinearly with antialiasing, rounded to bytes, and
    (x - mean) / standard deviation per channel."""
    shown = images.movedim(3, 1).float()
    if shown.shape[2:] != ({size}, {size}):
        shown = F.interpolate(shown, ({size}, {size}), mode="bilinear", antialias=True).round()
'''
    + NORMALISED
    + """\
    return (shown - mean.to(shown)) / deviation.to(shown)


"""
)
"""The function for images in an array, with a place for each number."""
ONE_STEP = """\
    image = image.resize(({size}, {size}), bilinear, centred(image, {crop}))
"""
"""The line that scales an image from its file at once."""
TWO_STEPS = """\
    image = image.resize(({packed}, {packed}), bilinear, centred(image, 1.0)).crop({corners})
    image = image.resize(({size}, {size}), bilinear)
"""
"""The lines for images that were packed: first to the packed side, then to that of the network, as in the
run."""
FILES = (
    '''\
def prepare(path: Path) -> Tensor:
    """The image in a JPEG or PNG file as the network reads it (1 × {channels} × {size} × {size}): a centred
    square, scaled bilinearly with antialiasing, (x - mean) / standard deviation per channel. This needs
    Pillow."""
    from PIL import Image

    def centred(image: Image.Image, share: float) -> tuple[float, float, float, float]:
        width, height = image.size
        side = min(width, height) * share
        left, upper = (width - side) / 2, (height - side) / 2
        return left, upper, left + side, upper + side

    bilinear = Image.Resampling.BILINEAR
    with Image.open(path) as file:
        file.info.pop("transparency", None)
        image = file.convert("{mode}")
{steps}\
    pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).view({size}, {size}, {channels})
'''
    + NORMALISED
    + """\
    return ((pixels.movedim(2, 0).float() - mean) / deviation)[None]


"""
)
"""The function for one image file, with a place for the lines that scale it."""
TEXT = '''\
def prepare(text: bytes) -> Tensor:
    """A text as the network reads it (1 × positions): its bytes, as whole numbers from 0 to 255. The logits
    at a position are those of the 256 bytes that may follow."""
    if not 0 < len(text) <= {positions}:
        raise ValueError(f"{{len(text)}} bytes; the network reads 1 to {positions}")
    return torch.tensor([list(text)])


'''
"""The function for a text, with a place for the number of positions."""
