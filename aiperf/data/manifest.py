"""What a set of images is, in plain JSON: the same on every rank that sees the same images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aiperf.config import DataConfig


@dataclass(frozen=True)
class Counts:
    """Images of each class, by split."""

    training: Sequence[int]
    validation: Sequence[int]
    test: Sequence[int]


def manifest(
    config: DataConfig, counts: Counts, sha256: str, official_training_images: int, synthetic: bool = False
) -> dict[str, Any]:
    """`sha256` is of the source: every image of it, whatever part of them a split takes.

    `official_training_images` are all of its training part, from which validation is taken.

    Of the classes the smallest and the largest are told, not all: every rank of a run sends this.
    """
    found: dict[str, Any] = {
        "name": config.name,
        "synthetic": synthetic,
        "channels": config.channels,
        "size": config.size,
        "classes": config.classes,
        "sha256": sha256,
        "official_training_images": official_training_images,
    }
    for name, by_class in vars(counts).items():
        found[f"{name}_images"] = sum(by_class)
        found[f"{name}_images_a_class"] = [min(by_class), max(by_class)]
    return found
