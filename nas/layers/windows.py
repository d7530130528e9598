"""Windows of an image: where they stand, and how many there are."""

from __future__ import annotations

from dataclasses import dataclass

from nas.layers.shapes import Shape, ShapeError, image, refuse_no_sizes


@dataclass(frozen=True)
class Windowed:
    """Square windows of an image, channel by channel. No layer itself: a record could name it."""

    kernel: int
    stride: int

    def __post_init__(self) -> None:
        refuse_no_sizes(self, "kernel", "stride")

    def shape(self, *inputs: Shape) -> Shape:
        (channels, *area) = image(self, inputs)
        return (channels, *windows(self, area, self.kernel, self.stride))


class Convolution:
    """What every layer that is a convolution can be asked for. No layer itself, nor a field of one."""

    channels: int
    kernel: int
    stride: int
    groups: int


def refuse_even(layer: object, kernel: int) -> None:
    if kernel % 2 == 0:
        raise ShapeError(f"{type(layer).__name__}: kernel {kernel} is even; use an odd one")


def windows(layer: object, area: list[int], kernel: int, stride: int) -> list[int]:
    """Windows along each side of the image."""
    padded = [side + 2 * ((kernel - 1) // 2) for side in area]
    if min(padded) < kernel:
        raise ShapeError(f"{type(layer).__name__}: kernel {kernel} on an area of {area}")
    return [(side - kernel) // stride + 1 for side in padded]
