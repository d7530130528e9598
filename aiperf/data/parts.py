"""The parts of a set of images: what their files tell, what a configuration states otherwise, and which
images of the training part validate."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import ceil

import numpy as np
from numpy.typing import NDArray

from aiperf.data.decode import EVALUATED_SHARE
from aiperf.errors import DataError
from aiperf.tasks.data import DataConfig
from nas.frozen import frozen

Indices = NDArray[np.int64]

# Every run splits alike: the run's own seed has no influence on which images are held back.
SPLIT_SEED = 1
SIDES = 8
"""Images are shown at a multiple of it, so that a network can halve them three times."""


@frozen
class PartFacts:
    """What the files of one part tell. Raises DataError for labels that no configuration could fit."""

    name: str
    """What `data.name` must be."""
    where: str
    """The files, for the errors."""
    labels: Indices
    channels: tuple[int, ...]
    """Numbers of channels in which the images can be shown."""
    augmentations: tuple[str, ...]
    """The augmentations that fit images of this kind."""
    classes: str = ""
    """How the classes are known, if not by the labels."""
    packed_side: int = 0
    """The side in pixels at which packed images are stored; 0 for others."""
    names: Sequence[str] = ()
    """Names of the classes, in the order of their labels; empty if they have numbers only."""

    def __post_init__(self) -> None:
        used = self.used_labels
        if len(used) < 2 or (used != np.arange(len(used))).any():
            raise DataError(
                f"{self.where}: {self.classes_text}; number the classes from 0 without gaps; at least two "
                "are needed"
            )

    @cached_property
    def used_labels(self) -> Indices:
        """Labels that some image has."""
        return np.unique(self.labels)

    @property
    def classes_text(self) -> str:
        """How many classes there are, and how that is known."""
        used = self.used_labels
        if self.classes or not len(used):
            return self.classes or "no labels"
        return f"labels from {used[0]} to {used[-1]}, {len(used)} of them used"


@frozen
class SetFacts:
    """What names and headers tell of a set, without the pixels."""

    training: PartFacts
    test: PartFacts
    channels: int
    size: int
    """Side of the square in which it would be shown."""


def shown_side(side: int) -> int:
    """The side in pixels at which images of this side are shown if nobody states another one."""
    return max(side - side % SIDES, SIDES)


def contradictions(config: DataConfig, *parts: PartFacts) -> list[str]:
    """Lists, for each key, the first part that contradicts it, with the remedy."""
    texts: dict[str, str] = {}
    for part in parts:
        for key, text in _contradictions(config, part).items():
            texts.setdefault(key, f"{part.where}: {text}")
    return list(texts.values())


def divide(config: DataConfig, training: PartFacts, test: PartFacts) -> tuple[Indices, Indices]:
    """Training and validation images out of the training part, as sorted indices.

    Raises DataError with everything that the configuration states otherwise.
    """
    texts = contradictions(config, training, test)
    try:
        parts = take_validation(training.labels, config, training.where, training.names)
    except DataError as error:
        refuse([*texts, str(error)])
    refuse(texts)
    return parts


def refuse(texts: Sequence[str]) -> None:
    """Raises DataError for these contradictions, if there are any."""
    if texts:
        raise DataError(". Also: ".join(texts))


def _contradictions(config: DataConfig, part: PartFacts) -> dict[str, str]:
    """What a part contradicts, by key of the configuration."""
    texts = {}
    if config.name != part.name:
        texts["name"] = f"is {part.name}, data.name is {config.name!r}; set data.name = '{part.name}'"
    if config.channels not in part.channels:
        possible = " or ".join(map(str, part.channels))
        texts["channels"] = (
            f"images have {possible} channels, data.channels is {config.channels}; set data.channels = "
            f"{possible}"
        )
    if config.classes != (number := len(part.used_labels)):
        texts["classes"] = (
            f"{part.classes_text}, but data.classes is {config.classes}; set data.classes = {number}"
            + (" or correct the labels" if not part.classes else "")
        )
    if config.augmentation not in part.augmentations:
        possible = " or ".join(map(repr, part.augmentations))
        texts["augmentation"] = (
            f"data.augmentation {config.augmentation!r} is not for images of this kind; set it to {possible}"
        )
    if 0 < part.packed_side < config.size:
        shown, packed = int(part.packed_side * EVALUATED_SHARE), ceil(config.size / EVALUATED_SHARE)
        texts["size"] = (
            f"images are packed at {part.packed_side} x {part.packed_side}, data.size is {config.size}, so "
            f"all images would be scaled up; set data.size = {shown} or less, or pack the images again with "
            f"--size {packed} into another folder"
        )
    return texts


def take_validation(
    labels: Indices, config: DataConfig, where: str, names: Sequence[str] = ()
) -> tuple[Indices, Indices]:
    """Training and validation images out of a training part, as sorted indices. `names` are those of the
    classes, for the errors.

    Raises DataError when there are too few, or when a class would be left without a training image.
    """
    wanted = config.training_examples or len(labels) - config.validation_examples  # 0: all that is left
    if wanted < 1 or wanted + config.validation_examples > len(labels):
        raise DataError(
            f"{where}: {len(labels)} training images cannot give {config.training_examples or 'some'} for "
            f"training and {config.validation_examples} for validation; lower "
            f"{'data.training_examples or ' if config.training_examples else ''}data.validation_examples"
        )
    classes, by_class = np.unique(labels, return_counts=True)
    least = int(by_class.argmin())
    if by_class[least] == 1:
        raise DataError(
            f"{where}: class {_named(classes[least], names)} has one training image, but two are needed, one "
            f"of them for validation; add images of that class"
        )
    # Validation is taken first, so that it is the same however many images are trained on.
    validation = stratified(labels, config.validation_examples)
    rest = np.setdiff1d(np.arange(len(labels)), validation)
    training = rest[stratified(labels[rest], wanted)]
    for name, chosen in (("training", training), ("validation", validation)):
        missing = np.setdiff1d(labels, labels[chosen])
        if len(missing):
            raise DataError(
                f"{where}: class {_named(missing[0], names)} has no image among the {len(chosen)} of {name}; "
                f"{_remedy(by_class, config)}add images of that class"
            )
    return training, validation


def _named(label: int, names: Sequence[str]) -> str:
    """A class for the errors: by its name if it has one, else by its number."""
    return names[label] if names else str(label)


def _remedy(by_class: Indices, config: DataConfig) -> str:
    """The numbers of examples with which every class has an image in both parts, as near to those of the
    configuration as the smallest class allows."""
    total, validation, training = int(by_class.sum()), config.validation_examples, config.training_examples
    enough = -(-total // int(by_class.min()))  # a part of this size has one of the smallest class
    sizes = ((validation, enough), (max(validation, enough), training), (enough, enough), (enough, 0))
    for held_back, trained in sizes:
        if _fits(by_class, held_back, trained):
            wanted = {"validation": (held_back, validation), "training": (trained, training)}
            settings = [f"data.{name}_examples = {new}" for name, (new, old) in wanted.items() if new != old]
            return f"set {' and '.join(settings)}, or "
    return ""


def _fits(by_class: Indices, validation: int, training: int) -> bool:
    """Whether with these numbers of examples each class has an image in both parts; `training` of 0: all
    that is left."""
    left = by_class - (held_back := quotas(by_class, validation))
    total = int(left.sum())
    return 0 <= training <= total and bool(held_back.all() and quotas(left, training or total).all())


def quotas(by_class: Indices, wanted: int) -> Indices:
    """How many of each class, in proportion (largest remainders; ties: the lower class)."""
    total = by_class.sum()
    exact = by_class * wanted  # whole numbers, so that no rounding differs between machines
    found: Indices = exact // total
    order = np.argsort(-(exact % total), kind="stable")
    found[order[: wanted - found.sum()]] += 1
    return found


def stratified(labels: Indices, wanted: int) -> Indices:
    """`wanted` indices, sorted, each class in proportion (`quotas`)."""
    # One generator for all classes, in the order of their labels: the choice is part of a run's definition.
    classes, by_class = np.unique(labels, return_counts=True)
    source = np.random.default_rng(SPLIT_SEED)
    chosen = [
        source.permutation(np.flatnonzero(labels == number))[:quota]
        for number, quota in zip(classes, quotas(by_class, wanted))
    ]
    return np.sort(np.concatenate(chosen))
