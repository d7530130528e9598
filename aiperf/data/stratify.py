"""Which images of a set go to which split: stratified by class, the same in every run."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from aiperf.errors import DataError
from aiperf.tasks.data import DataConfig

Indices = NDArray[np.int64]

# Every run splits alike; the run's own seed has no say in which images are held back.
SPLIT_SEED = 1


def take_validation(labels: Indices, config: DataConfig, where: str) -> tuple[Indices, Indices]:
    """Training and validation images out of a training part, as sorted indices.

    Raises DataError when there are too few, or when a class would be left without a training image.
    """
    wanted = config.training_examples or len(labels) - config.validation_examples
    if wanted < 1 or wanted + config.validation_examples > len(labels):
        raise DataError(
            f"{where}: {len(labels)} training images cannot give {config.training_examples or 'some'} for "
            f"training and {config.validation_examples} for validation; lower data.training_examples or "
            "data.validation_examples"
        )
    validation = stratified(labels, config.validation_examples)
    rest = np.setdiff1d(np.arange(len(labels)), validation)
    training = rest[stratified(labels[rest], wanted)]
    for name, chosen in (("training", training), ("validation", validation)):
        missing = np.setdiff1d(labels, labels[chosen])
        if len(missing):
            raise DataError(
                f"{where}: class {missing[0]} has no image among the {len(chosen)} of {name}; "
                f"raise data.{name}_examples or add images of that class"
            )
    return training, validation


def stratified(labels: Indices, wanted: int) -> Indices:
    """`wanted` indices, sorted, each class in proportion (largest remainders; ties: the lower class)."""
    classes, by_class = np.unique(labels, return_counts=True)
    exact = by_class * wanted
    quotas = exact // len(labels)
    order = np.argsort(-(exact % len(labels)), kind="stable")
    quotas[order[: wanted - quotas.sum()]] += 1
    source = np.random.default_rng(SPLIT_SEED)
    chosen = [
        source.permutation(np.flatnonzero(labels == number))[:quota] for number, quota in zip(classes, quotas)
    ]
    return np.sort(np.concatenate(chosen))
