"""Which images of a set go to which split: stratified by class, the same in every run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from aiperf.errors import DataError
from aiperf.tasks.data import DataConfig

Indices = NDArray[np.int64]

# Every run splits alike; the run's own seed has no say in which images are held back.
SPLIT_SEED = 1


def take_validation(
    labels: Indices, config: DataConfig, where: str, names: Sequence[str] = ()
) -> tuple[Indices, Indices]:
    """Training and validation images out of a training part, as sorted indices. `names` are those of the
    classes, for the errors.

    Raises DataError when there are too few, or when a class would be left without a training image.
    """
    wanted = config.training_examples or len(labels) - config.validation_examples
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
    return names[label] if names else str(label)


def _remedy(by_class: Indices, config: DataConfig) -> str:
    """The numbers of examples with which every class has an image in both parts, as near to those of the
    configuration as the smallest class allows."""
    total, validation, training = int(by_class.sum()), config.validation_examples, config.training_examples
    enough = -(-total // int(by_class.min()))  # with so many, the smallest class has a whole share
    sizes = ((validation, enough), (max(validation, enough), training), (enough, enough), (enough, 0))
    for held_back, trained in sizes:
        if _fits(by_class, held_back, trained):
            wanted = {"validation": (held_back, validation), "training": (trained, training)}
            told = [f"data.{name}_examples = {new}" for name, (new, old) in wanted.items() if new != old]
            return f"set {' and '.join(told)}, or "
    return ""


def _fits(by_class: Indices, validation: int, training: int) -> bool:
    left = by_class - (held_back := quotas(by_class, validation))
    total = int(left.sum())
    return 0 <= training <= total and bool(held_back.all() and quotas(left, training or total).all())


def quotas(by_class: Indices, wanted: int) -> Indices:
    """How many of each class, in proportion (largest remainders; ties: the lower class)."""
    total = by_class.sum()
    exact = by_class * wanted
    found: Indices = exact // total
    order = np.argsort(-(exact % total), kind="stable")
    found[order[: wanted - found.sum()]] += 1
    return found


def stratified(labels: Indices, wanted: int) -> Indices:
    """`wanted` indices, sorted, each class in proportion (`quotas`)."""
    classes, by_class = np.unique(labels, return_counts=True)
    source = np.random.default_rng(SPLIT_SEED)
    chosen = [
        source.permutation(np.flatnonzero(labels == number))[:quota]
        for number, quota in zip(classes, quotas(by_class, wanted))
    ]
    return np.sort(np.concatenate(chosen))
