"""What is known of texts without reading them: how many windows their parts have, and known texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aiperf.config import DataConfig
from aiperf.tasks.task import DataFacts, Manifest

SYNTHETIC = "synthetic-text"
PARTS = ("training", "validation", "test")
SHARES: Mapping[str, int] = {"training": 90, "validation": 5, "test": 5}
"""Of a text by position, in per cent, as enwik8 and enwik9 are customarily split."""


@dataclass(frozen=True)
class KnownText:
    """A text that everybody has, by its SHA-256."""

    title: str
    sha256: str
    bytes: int

    def facts(self, size: int) -> dict[str, int]:
        """By the keys of a manifest, in windows of this size."""
        lengths = {part: self.bytes * share // 100 for part, share in SHARES.items()}
        lengths["training"] = self.bytes - lengths["validation"] - lengths["test"]
        windows = {part: (length - 1) // size for part, length in lengths.items()}
        return {
            **{f"{part}_images": number for part, number in windows.items()},
            "official_training_images": windows["training"] + windows["validation"],
            "bytes_left_out": self.bytes - size * sum(windows.values()),
        }


# Mahoney, "Large Text Compression Benchmark": the first 10^9 bytes of the English Wikipedia of 3 March 2006.
# MD5 e206c3450ac99950df65bf70ef61a12d there; this SHA-256 is of the file with that MD5.
ENWIK9 = KnownText(
    "enwik9", "159b85351e5f76e60cbe32e04c677847a9ecba3adc79addab6f4c6c7aa3744bc", 1_000_000_000
)
KNOWN = (ENWIK9,)


def contradictions(config: DataConfig, manifest: Manifest) -> Iterator[str]:
    for what in ("name", "channels", "size", "classes"):
        if manifest.get(what) != getattr(config, what):
            yield f"data.{what} is {manifest.get(what)!r}, declared {getattr(config, what)!r}"
    if manifest.get("synthetic") != (config.name == SYNTHETIC):
        yield f"data.synthetic is {manifest.get('synthetic')!r} of {config.name}"
    yield from _counts(config, manifest)
    if (known := _known(manifest)) is not None:
        yield from _unlike(known, config, manifest)


def is_known(manifest: Manifest) -> bool:
    return manifest.get("synthetic") is True or _known(manifest) is not None


def foreseen(data: DataConfig) -> dict[str, Any]:
    """Of the text that comes with this program, or of as many windows as the configuration says."""
    asked = {f"{part}_images": getattr(data, f"{part}_images") for part in PARTS}
    official = asked["training_images"] + asked["validation_images"]
    return {
        "name": data.name,
        "synthetic": data.name == SYNTHETIC,
        "channels": data.channels,
        "size": data.size,
        "classes": data.classes,
        "sha256": "",
        "official_training_images": official,
        **asked,
        "bytes_left_out": 0,
    }


def summary(manifest: Manifest) -> str:
    counts = ", ".join(f"{manifest[f'{part}_images']:,} {part}" for part in PARTS)
    return f"{manifest['name']}, windows of {manifest['size']:,} bytes: {counts}"


TEXT_FACTS = DataFacts(contradictions, is_known, foreseen, summary)


def _known(manifest: Manifest) -> KnownText | None:
    return next((each for each in KNOWN if manifest.get("sha256") == each.sha256), None)


def _counts(config: DataConfig, manifest: Manifest) -> Iterator[str]:
    found = {part: manifest.get(f"{part}_images", 0) for part in PARTS}
    for part, number in found.items():
        declared = getattr(config, f"{part}_images")
        if number < 1:
            yield f"there are {number} {part} windows"
        if declared and (number != declared if config.name == SYNTHETIC else number > declared):
            yield f"data.{part}_images is {number}, declared {declared}"
    used = found["training"] + found["validation"]
    official = manifest.get("official_training_images", used)
    all_used = not config.training_images and not config.validation_images
    if used > official or (all_used and used < official):
        yield f"{used} windows to train and to validate, out of {official}"
    left = manifest.get("bytes_left_out")
    if type(left) is not int or left < 0:
        yield f"bytes_left_out is {left!r:.60}, not a number of bytes"


def _unlike(known: KnownText, config: DataConfig, manifest: Manifest) -> Iterator[str]:
    """A part is whole, or as short as the configuration makes it."""
    for key, value in known.facts(config.size).items():
        declared = getattr(config, key, 0)
        expected = min(value, declared) if declared else value
        if manifest.get(key) != expected:
            yield f"{key} is {manifest.get(key)!r}, and {known.title} has {expected!r}"
