"""Windows of an image: their kernel, stride and padding, how many there are, and what they see.

Sizes of windows are one number for both sides, or (height, width).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from nas.layers.shapes import ShapeError, is_size, refuse_size

Sides = int | tuple[int, int]

LATER: dict[str, bool] = {"later": True}
"""Of a field that a layer got after its first networks were recorded: it is left out of the layer's text,
of which keys of architectures are made, where it holds its default."""


@dataclass(frozen=True)
class Windows:
    """The windows along one side of an image. `ceil`: the last may begin on it and end beyond its padding."""

    side: int
    kernel: int
    stride: int
    padding: int
    ceil: bool = False

    @property
    def padded(self) -> int:
        return self.side + 2 * self.padding

    @property
    def num(self) -> int:
        room = self.padded - self.kernel
        if not self.ceil:
            return room // self.stride + 1
        found = -(-room // self.stride) + 1
        return found - ((found - 1) * self.stride >= self.side + self.padding)

    @property
    def taps_on_image(self) -> int:
        """Of all taps of all windows those that do not fall on the padding."""
        starts = range(-self.padding, self.num * self.stride - self.padding, self.stride)
        return sum(min(self.side, start + self.kernel) - max(0, start) for start in starts)

    @property
    def all_taps_see(self) -> bool:
        """Whether each tap of the kernel meets the image in some window. One that never does has no gradient.

        In window i the image lies under the taps from padding − i·stride on, `side` of them.
        """
        if self.stride <= self.side:  # what lies under one window and the next leaves no gap
            return (self.num - 1) * self.stride >= self.padding > self.kernel - 1 - self.side
        first = -(-self.padding // self.stride)  # the first window with the image under tap 0
        return first < self.num and self.padding - first * self.stride + self.side >= self.kernel


class Windowed:
    """What a layer of windows has. No layer itself: a record could name it."""

    kernel: Sides
    stride: Sides
    padding: Sides | None
    """On every side of the image; None: (kernel − 1) // 2."""
    ceil_mode = False
    centred = False
    """Whether each window stands around a pixel, so that the padding of an even kernel must be stated."""

    def __repr__(self) -> str:
        """As a dataclass has it, less what is LATER."""
        shown = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)  # type: ignore[arg-type]
            if "later" not in field.metadata or getattr(self, field.name) != field.default
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    @property
    def kernels(self) -> tuple[int, int]:
        return both(self.kernel)

    @property
    def strides(self) -> tuple[int, int]:
        return both(self.stride)

    @property
    def paddings(self) -> tuple[int, int]:
        height, width = self.kernels
        return ((height - 1) // 2, (width - 1) // 2) if self.padding is None else both(self.padding)

    def windows(self, area: Sequence[int]) -> tuple[Windows, Windows]:
        """Along the height and the width. Raises ShapeError when there are none."""
        found = tuple(
            Windows(side, kernel, stride, padding, self.ceil_mode)
            for side, kernel, stride, padding in zip(area, self.kernels, self.strides, self.paddings)
        )
        if any(each.num < 1 for each in found):
            raise ShapeError(f"{type(self).__name__}: kernel {self.kernel} on an area of {list(area)}")
        return found[0], found[1]

    def settle(self) -> None:
        """Refuses what cannot be, and writes what is the same in one way, so that it has one key."""
        settle_sides(self, "kernel", "stride")
        name, halves = type(self).__name__, tuple((kernel - 1) // 2 for kernel in self.kernels)
        even = self.centred and not all(kernel % 2 for kernel in self.kernels)
        if self.padding is None:
            if even:
                raise ShapeError(
                    f"{name}: kernel {self.kernel} is even; use an odd one, or state its padding"
                )
            return
        settle_sides(self, "padding", least=0)
        if any(padding >= kernel for padding, kernel in zip(self.paddings, self.kernels)):
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
    """Of the height and of the width."""
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
