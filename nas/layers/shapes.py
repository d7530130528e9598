"""Shapes of tensors, without a batch dimension: (channels, height, width) of images, (features,) of vectors,
(positions,) of symbols and (positions, features) of what is computed with them."""

from __future__ import annotations

from typing import NoReturn

Shape = tuple[int, ...]

LARGEST_SIZE = 2**31 - 1  # what cuDNN and oneDNN take for one side of a tensor


class ShapeError(ValueError):
    """Layers that do not fit together, or a layer that cannot exist."""


def is_size(value: object, least: int = 1) -> bool:
    """Whether a value can be one side of a tensor; a bool cannot."""
    return type(value) is int and least <= value <= LARGEST_SIZE


def only(layer: object, inputs: tuple[Shape, ...]) -> Shape:
    if len(inputs) != 1:
        raise ShapeError(f"{type(layer).__name__}: reads one input, not {len(inputs)}")
    return inputs[0]


def image(layer: object, inputs: tuple[Shape, ...]) -> Shape:
    shape = only(layer, inputs)
    if len(shape) != 3:
        raise ShapeError(f"{type(layer).__name__}: reads (channels, height, width), not {shape}")
    return shape


def vector(layer: object, inputs: tuple[Shape, ...]) -> Shape:
    shape = only(layer, inputs)
    if len(shape) != 1:
        raise ShapeError(f"{type(layer).__name__}: reads (features,), not {shape}")
    return shape


def symbols(layer: object, inputs: tuple[Shape, ...]) -> Shape:
    shape = only(layer, inputs)
    if len(shape) != 1:
        raise ShapeError(f"{type(layer).__name__}: reads (positions,), not {shape}")
    return shape


def sequence(layer: object, inputs: tuple[Shape, ...]) -> Shape:
    shape = only(layer, inputs)
    if len(shape) != 2:
        raise ShapeError(f"{type(layer).__name__}: reads (positions, features), not {shape}")
    return shape


def refuse_no_sizes(layer: object, *names: str) -> None:
    for name in names:
        if not is_size(getattr(layer, name)):
            refuse_size(layer, name)


def refuse_size(layer: object, name: str, least: int = 1) -> NoReturn:
    shown = repr(getattr(layer, name))[:40]
    raise ShapeError(
        f"{type(layer).__name__}: {name} is {shown}, not a whole number from {least} to 2^31 − 1"
    )
