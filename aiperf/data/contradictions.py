"""What lies in a folder of images, and all that a configuration states otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil

import numpy as np
from numpy.typing import NDArray

from aiperf.data.decode import EVALUATED_SHARE
from aiperf.data.stratify import Indices, take_validation
from aiperf.errors import DataError
from aiperf.tasks.data import DataConfig


@dataclass(frozen=True)
class Found:
    """One part of a set, as it is. Raises DataError for labels that no configuration could fit."""

    name: str
    """What `data.name` must be."""
    where: str
    """The files, for the errors."""
    labels: NDArray[np.int64]
    channels: tuple[int, ...]
    """Those in which the images can be shown."""
    augmentations: tuple[str, ...]
    classes: str = ""
    """How the classes are known, where it is not by the labels."""
    packed_side: int = 0
    """The side in pixels at which packed images are stored; 0 for others."""
    names: Sequence[str] = ()
    """Names of the classes, in the order of their labels; empty if they have numbers only."""

    def __post_init__(self) -> None:
        used = self.used
        if len(used) < 2 or (used != np.arange(len(used))).any():
            raise DataError(
                f"{self.where}: {self.told}; number the classes from 0 without gaps; at least two are needed"
            )

    @cached_property
    def used(self) -> NDArray[np.int64]:
        """Labels that some image has."""
        return np.unique(self.labels)

    @property
    def told(self) -> str:
        if self.classes or not len(self.used):
            return self.classes or "no labels"
        return f"labels from {self.used[0]} to {self.used[-1]}, {len(self.used)} of them used"


@dataclass(frozen=True)
class Look:
    """A set, as far as a look at its files tells, without the pixels."""

    training: Found
    test: Found
    channels: int
    size: int
    """Side of the square in which it would be shown."""


def contradictions(config: DataConfig, *parts: Found) -> list[str]:
    """Lists, for each key, the first part that contradicts it, with the remedy."""
    told: dict[str, str] = {}
    for part in parts:
        for key, text in _contradictions(config, part).items():
            told.setdefault(key, f"{part.where}: {text}")
    return list(told.values())


def divided(config: DataConfig, training: Found, test: Found) -> tuple[Indices, Indices]:
    """Training and validation images out of the training part, as sorted indices.

    Raises DataError, which tells at once all that the configuration states otherwise.
    """
    told = contradictions(config, training, test)
    try:
        parts = take_validation(training.labels, config, training.where, training.names)
    except DataError as error:
        refuse([*told, str(error)])
    refuse(told)
    return parts


def refuse(told: Sequence[str]) -> None:
    """Raises DataError for these contradictions, if there are any."""
    if told:
        raise DataError(". Also: ".join(told))


def _contradictions(config: DataConfig, part: Found) -> dict[str, str]:
    """By key."""
    told = {}
    if config.name != part.name:
        told["name"] = f"is {part.name}, data.name is {config.name!r}; set data.name = '{part.name}'"
    if config.channels not in part.channels:
        may = " or ".join(map(str, part.channels))
        told["channels"] = (
            f"images have {may} channels, data.channels is {config.channels}; set data.channels = {may}"
        )
    if config.classes != len(part.used):
        told["classes"] = (
            f"{part.told}, but data.classes is {config.classes}; set data.classes = {len(part.used)}"
            + (" or correct the labels" if not part.classes else "")
        )
    if config.augmentation not in part.augmentations:
        may = " or ".join(map(repr, part.augmentations))
        told["augmentation"] = (
            f"data.augmentation {config.augmentation!r} is not for images of this kind; set it to {may}"
        )
    if 0 < part.packed_side < config.size:
        shown, packed = int(part.packed_side * EVALUATED_SHARE), ceil(config.size / EVALUATED_SHARE)
        told["size"] = (
            f"images are packed at {part.packed_side} x {part.packed_side}, data.size is {config.size}, so "
            f"all images would be scaled up; set data.size = {shown} or less, or pack the images again with "
            f"--size {packed} into another folder"
        )
    return told
