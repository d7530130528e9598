"""Shapes of tensors, and the windows that a kernel takes from an image.

Shapes have no batch dimension: (channels, height, width) of images, (features,) of vectors, (positions,) of
symbols and (positions, features) of what is computed with them. Sizes of windows are one number for both
sides, or (height, width).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from nas.frozen import frozen

Shape = tuple[int, ...]
Sides = int | tuple[int, int]

LARGEST_SIZE = 2**31 - 1  # what cuDNN and oneDNN take for one side of a tensor


class ShapeError(ValueError):
    """Layers that do not fit together, or a layer that cannot exist."""


def is_size(value: object, least: int = 1) -> bool:
    """Whether a value can be one side of a tensor; a bool cannot."""
    return type(value) is int and least <= value <= LARGEST_SIZE


def only(layer: object, inputs: tuple[Shape, ...]) -> Shape:
    """The one input of a layer of any shape. Raises ShapeError for none or several."""
    if len(inputs) != 1:
        raise ShapeError(f"{type(layer).__name__}: reads one input, not {len(inputs)}")
    return inputs[0]


def image(layer: object, inputs: tuple[Shape, ...]) -> Shape:
    """The one input of a layer of images."""
    return _of_sides(3, layer, inputs, "(channels, height, width)")


def vector(layer: object, inputs: tuple[Shape, ...]) -> Shape:
    """The one input of a layer of vectors."""
    return _of_sides(1, layer, inputs, "(features,)")


def symbols(layer: object, inputs: tuple[Shape, ...]) -> Shape:
    """The shape (positions,) of the one input of a layer that reads symbols. Raises ShapeError for
    another."""
    return _of_sides(1, layer, inputs, "(positions,)")


def sequence(layer: object, inputs: tuple[Shape, ...]) -> Shape:
    """The shape (positions, features) of the one input of a layer of sequences. Raises ShapeError for
    another."""
    return _of_sides(2, layer, inputs, "(positions, features)")


def _of_sides(num: int, layer: object, inputs: tuple[Shape, ...], form: str) -> Shape:
    shape = only(layer, inputs)
    if len(shape) != num:
        raise ShapeError(f"{type(layer).__name__}: reads {form}, not {shape}")
    return shape


def refuse_no_sizes(layer: object, *names: str) -> None:
    """Raises ShapeError unless each of these fields is a size."""
    for name in names:
        if not is_size(getattr(layer, name)):
            refuse_size(layer, name)


def refuse_size(layer: object, name: str, least: int = 1) -> NoReturn:
    """Raises ShapeError for a field; its value is cut, because a stranger's may have any length."""
    shown = repr(getattr(layer, name))[:40]
    raise ShapeError(
        f"{type(layer).__name__}: {name} is {shown}, not a whole number from {least} to 2^31 − 1"
    )


@frozen
class Windows:
    """The windows along one side of an image. `ceil`: the last may begin on it and end beyond its padding."""

    side: int
    kernel: int
    stride: int
    padding: int
    ceil: bool = False
    dilation: int = 1
    """From one tap of the kernel to the next, in pixels."""

    @property
    def reach(self) -> int:
        """Pixels from the first tap to the last, both included."""
        return self.dilation * (self.kernel - 1) + 1

    @property
    def padded(self) -> int:
        """Pixels of the side and of its padding at both ends."""
        return self.side + 2 * self.padding

    @property
    def num(self) -> int:
        """How many windows there are. As in PyTorch, with `ceil` none begins behind the image and its first
        padding."""
        room = self.padded - self.reach
        if not self.ceil:
            return room // self.stride + 1
        found = -(-room // self.stride) + 1
        return found - ((found - 1) * self.stride >= self.side + self.padding)

    @property
    def taps_on_image(self) -> int:
        """How many taps of all windows together do not fall on the padding."""
        # The taps of a window at `start` before the end of the image, less those before its first pixel.
        return self._taps_before(self.side) - self._taps_before(0)

    @property
    def pixels_seen(self) -> int:
        """How many pixels of the image lie in any window, without dilation."""
        if self.stride >= self.kernel:
            return self.taps_on_image
        return max(0, min(self.side, (self.num - 1) * self.stride + self.kernel - self.padding))

    @property
    def least_that_see(self) -> int:
        """How many windows have a tap on the image; if it lies between two taps of some, the fewest that can
        have all that are on it."""
        if self.dilation > self.side:
            return -(-self.taps_on_image // self.kernel)
        return self.num  # none is on the padding alone: it is narrower than a window

    @property
    def all_taps_see(self) -> bool:
        """Whether each tap of the kernel meets the image in some window. One that never does has no gradient.

        The windows that show the image to a tap begin in a range of `side` pixels, which moves back by one
        dilation from tap to tap. For the first and the last tap some of it must lie among the windows; then
        it does for all. A range that is no shorter than a stride holds the beginning of a window; of shorter
        ones this is counted.
        """
        first, last = self.padding, self.padding - (self.reach - 1)
        if first > (self.num - 1) * self.stride or last + self.side - 1 < 0:
            return False
        if self.stride <= self.side:
            return True
        ends = floor_sum(self.kernel, self.stride, self.dilation, -first)
        seen = ends - floor_sum(self.kernel, self.stride, self.dilation, -first - self.side)
        return seen == self.kernel and last > -self.stride

    def _taps_before(self, pixel: int) -> int:
        """The taps of all windows that lie before this pixel of the image, padding included."""
        behind = self.padding + pixel  # pixels from where the first window begins
        some, whole = self._windows_up_to(behind - 1), self._windows_up_to(behind - self.reach)
        # Of the windows in between, from the last one back, ⌈pixels behind their beginning / dilation⌉ taps.
        last = behind - (some - 1) * self.stride
        return whole * self.kernel + floor_sum(
            some - whole, self.dilation, self.stride, last + self.dilation - 1
        )

    def _windows_up_to(self, pixels: int) -> int:
        """Number of windows that begin within this number of pixels after the first."""
        return 0 if pixels < 0 else min(self.num, pixels // self.stride + 1)


def most_taps(side: int) -> int:
    """The most taps of a kernel along this number of pixels; most of a larger one would see only padding.
    Taps on the padding are counted, and nothing would bound how many a device makes."""
    return 2 * side + 4


def floor_sum(num: int, divisor: int, step: int, first: int) -> int:
    """The sum of ⌊(step·i + first) / divisor⌋ over i of 0 … num − 1, in as many turns as a greatest common
    divisor takes (Graham, Knuth, Patashnik, "Concrete Mathematics", section 3.5): a kernel or an image may
    have billions of pixels."""
    total = 0
    while num > 0:
        whole, step = divmod(step, divisor)
        more, first = divmod(first, divisor)
        total += whole * (num * (num - 1) // 2) + more * num
        num, first = divmod(step * num + first, divisor)
        divisor, step = step, divisor
    return total


class Windowed:
    """What a layer of windows has. No layer itself: a record could name it."""

    kernel: Sides
    stride: Sides
    padding: Sides | None
    """On every side of the image; None: (reach − 1) // 2. Without dilation a kernel's reach is its size."""
    ceil_mode = False
    dilation: Sides = 1
    """From one tap of the kernel to the next, in pixels."""
    centred = False
    """Whether each window stands around a pixel, so that the padding of an even kernel must be stated."""

    @property
    def kernels(self) -> tuple[int, int]:
        return both(self.kernel)

    @property
    def strides(self) -> tuple[int, int]:
        return both(self.stride)

    @property
    def paddings(self) -> tuple[int, int]:
        """Along the height and the width; without a stated padding, half the reach, as for odd kernels."""
        height, width = self.reaches
        return ((height - 1) // 2, (width - 1) // 2) if self.padding is None else both(self.padding)

    @property
    def dilations(self) -> tuple[int, int]:
        return both(self.dilation)

    @property
    def reaches(self) -> tuple[int, int]:
        """Pixels from the first tap of the kernel to the last, along the height and the width."""
        (height, width), (down, right) = self.kernels, self.dilations
        return down * (height - 1) + 1, right * (width - 1) + 1

    def windows(self, area: Sequence[int]) -> tuple[Windows, Windows]:
        """Along the height and the width. Raises ShapeError when there are none."""
        found = tuple(
            Windows(side, kernel, stride, padding, self.ceil_mode, dilation)
            for side, kernel, stride, padding, dilation in zip(
                area, self.kernels, self.strides, self.paddings, self.dilations
            )
        )
        if any(each.num < 1 for each in found):
            raise ShapeError(f"{type(self).__name__}: kernel {self.kernel} on an area of {list(area)}")
        return found[0], found[1]

    def settle(self) -> None:
        """Refuses what cannot be, and writes what is the same in one way, so that it has one key."""
        settle_sides(self, "kernel", "stride")
        if self.dilation != 1:
            settle_sides(self, "dilation")
            # One tap has no next one.
            apart = [step if kernel > 1 else 1 for step, kernel in zip(self.dilations, self.kernels)]
            object.__setattr__(self, "dilation", (apart[0], apart[1]))
            settle_sides(self, "dilation")
        name, halves = type(self).__name__, tuple((reach - 1) // 2 for reach in self.reaches)
        even = self.centred and not all(kernel % 2 for kernel in self.kernels)
        if self.padding is None:
            if even:
                raise ShapeError(
                    f"{name}: kernel {self.kernel} is even; use an odd one, or state its padding"
                )
            return
        settle_sides(self, "padding", least=0)
        if any(padding >= reach for padding, reach in zip(self.paddings, self.reaches)):
            raise ShapeError(
                f"{name}: with padding {self.padding}, a kernel of {self.kernel} would see padding only"
            )
        if self.paddings == halves and not even:
            object.__setattr__(self, "padding", None)


class Convolution(Windowed):
    """What every layer that is a convolution can be asked for. No layer itself: a record could name it."""

    channels: int
    groups: int


def both(sides: Sides) -> tuple[int, int]:
    """The size along the height and the one along the width."""
    return sides if isinstance(sides, tuple) else (sides, sides)


def settle_sides(layer: object, *names: str, least: int = 1) -> None:
    """Refuses other sizes, and makes one number of two equal ones."""
    for name in names:
        value = getattr(layer, name)
        pair = value if isinstance(value, tuple) and len(value) == 2 else (value, value)
        if not all(is_size(side, least) for side in pair):
            refuse_size(layer, name, least)
        if pair[0] == pair[1]:
            object.__setattr__(layer, name, pair[0])
