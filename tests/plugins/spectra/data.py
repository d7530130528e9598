"""The configuration of spectrograms, with a key of its own, and what is known of them without making them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from aiperf.errors import ConfigError
from aiperf.tasks.data import PARTS, DataConfig, at_least
from aiperf.tasks.task import DataFacts, Manifest
from spectra.signals import SOUNDS


@dataclass(frozen=True)
class SpectraData(DataConfig):
    """Generated spectrograms: `size` frames of `bins` frequencies."""

    names = ("spectra",)
    without_files = generated = ("spectra",)

    bins: int = 48
    """Frequencies of a spectrogram, from the lowest."""

    def check(self) -> None:
        for name, value in (("channels", 1), ("classes", len(SOUNDS)), ("augmentation", "none")):
            if (found := getattr(self, name)) != value:
                raise ConfigError(f"data.{name} is {found!r}; spectrograms have {value!r}")
        at_least("data.size", self.size, 8)
        at_least("data.bins", self.bins, 8)
        for name in ("training_examples", "test_examples"):
            at_least(f"data.{name}", getattr(self, name), 1)


def foreseen(data: DataConfig) -> dict[str, Any]:
    assert isinstance(data, SpectraData)
    return {
        **data.manifest(sha256=""),
        "bins": data.bins,
        "official_training_examples": sum(data.part_examples[:2]),
        **{f"{part}_examples": number for part, number in zip(PARTS, data.part_examples)},
    }


def contradictions(config: DataConfig, manifest: Manifest) -> Iterator[str]:
    for key, value in foreseen(config).items():
        if key != "sha256" and manifest.get(key) != value:
            yield f"{key} is {manifest.get(key)!r:.60}, but the configuration gives {value!r}"


def summary(manifest: Manifest) -> str:
    counts = ", ".join(f"{manifest[f'{part}_examples']:,} {part}" for part in PARTS)
    return f"spectrograms of {manifest['bins']} bins and {manifest['size']} frames: {counts}"


FACTS = DataFacts(
    contradictions,
    is_known=lambda manifest: manifest.get("synthetic") is True,
    has_like_parts=lambda manifest: True,
    foreseen=foreseen,
    summary=summary,
)
