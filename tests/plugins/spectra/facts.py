"""What is known of spectrograms without making them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiperf.tasks.data import PARTS, DataConfig
from aiperf.tasks.task import DataFacts, Manifest
from spectra.data import SpectraData


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
