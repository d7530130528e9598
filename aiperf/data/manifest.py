"""What a set of images or a text is, in plain JSON: the same on every rank that sees the same one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aiperf.tasks.data import DataConfig


@dataclass(frozen=True)
class Counts:
    """Images of each class, by split."""

    training: Sequence[int]
    validation: Sequence[int]
    test: Sequence[int]


def manifest(
    config: DataConfig, counts: Counts, sha256: str, official_training_examples: int, synthetic: bool = False
) -> dict[str, Any]:
    """`sha256` is of the source: every image of it, whatever part of them a split takes.

    `official_training_examples` are all of its training part, from which validation is taken.

    Only the smallest and the largest class are stated, not all: every rank of a run sends this.
    """
    found = _of_any(config, sha256, official_training_examples, synthetic)
    for name, by_class in vars(counts).items():
        found[f"{name}_examples"] = sum(by_class)
        found[f"{name}_examples_per_class"] = [min(by_class), max(by_class)]
    return found


def text_manifest(
    config: DataConfig, windows: Sequence[int], sha256: str, official_training_examples: int, synthetic: bool
) -> dict[str, Any]:
    """Describes a text; `windows` are the numbers of training, validation and test."""
    found = _of_any(config, sha256, official_training_examples, synthetic)
    training, validation, test = windows
    return {**found, "training_examples": training, "validation_examples": validation, "test_examples": test}


def _of_any(
    config: DataConfig, sha256: str, official_training_examples: int, synthetic: bool
) -> dict[str, Any]:
    return {
        "name": config.name,
        "synthetic": synthetic,
        "channels": config.channels,
        "size": config.size,
        "classes": config.classes,
        "sha256": sha256,
        "official_training_examples": official_training_examples,
    }
