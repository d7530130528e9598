"""Windows of an image: their kernel, stride, padding and dilation, how many there are, and what they see.

Sizes of windows are one number for both sides, or (height, width).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nas.layers.shapes import ShapeError, is_size, refuse_size

Sides = int | tuple[int, int]

LATER: dict[str, bool] = {"later": True}
"""Metadata of a field that a layer got after its first networks were recorded. It is left out of the layer's
text, of which keys of architectures are made, where it holds its default: `Layer.__repr__`."""


@dataclass(frozen=True)
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
        return self.side + 2 * self.padding

    @property
    def num(self) -> int:
        room = self.padded - self.reach
        if not self.ceil:
            return room // self.stride + 1
        found = -(-room // self.stride) + 1
        return found - ((found - 1) * self.stride >= self.side + self.padding)

    @property
    def taps_on_image(self) -> int:
        """How many taps of all windows together do not fall on the padding."""
        step = self.dilation
        return sum(
            max(0, min(self.kernel, (self.side - 1 - start) // step + 1) - max(0, -(start // step)))
            for start in self._starts
        )

    @property
    def all_taps_see(self) -> bool:
        """Whether each tap of the kernel meets the image in some window. One that never does has no gradient.

        Without dilation, the image lies in window i under the `side` taps from padding − i·stride on.
        """
        if self.dilation > 1:
            taps = range(0, self.reach, self.dilation)
            return all(any(0 <= start + tap < self.side for start in self._starts) for tap in taps)
        if self.stride <= self.side:  # what lies under one window and the next leaves no gap
            return (self.num - 1) * self.stride >= self.padding > self.kernel - 1 - self.side
        first = -(-self.padding // self.stride)  # the first window with the image under tap 0
        return first < self.num and self.padding - first * self.stride + self.side >= self.kernel

    @property
    def _starts(self) -> range:
        """Where the first tap of each window is, from the first pixel of the image on."""
        return range(-self.padding, self.num * self.stride - self.padding, self.stride)


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
