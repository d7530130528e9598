"""What is known of texts without reading them: how many windows their parts have, and known texts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from aiperf.tasks.data import PARTS, DataConfig
from aiperf.tasks.language.known_texts import BUNDLED_TEXT, KNOWN_TEXTS, KnownText, known_text
from aiperf.tasks.language.tally import BITS_OF_A_BYTE
from aiperf.tasks.language.text_windows import TextWindows
from aiperf.tasks.task import DataFacts, ErrorLimit, Manifest, differences

MOST_GENERATED = (1 << 32) - 1
"""Generated windows that differ: each is made of a word of 32 bits."""
GENERATED_BITS = 1.484
"""Bits per byte of generated text if the two bytes before are known, computed from `SHARES` of
aiperf/data/texts/generated.py; the first bytes of a window take more."""
LEAST_OF_ENTROPY = 0.75
"""The least share of the entropy that a sample of 4,096 bytes or more can take. Of 1,953 blocks of 4,096
bytes, the easiest has 0.86 times the bits of the hardest (aiperf/tasks/language/tally.py)."""


def contradictions(config: DataConfig, manifest: Manifest) -> Iterator[str]:
    """Yields what cannot be in a manifest of a text: every number of windows follows from its bytes and the
    configuration."""
    yield from config.disagreements(manifest)
    if (known := known_text(manifest)) is not None:
        yield from differences(manifest, known)
    if not (config.is_generated or config.path) and manifest.get("sha256") != BUNDLED_TEXT.sha256:
        yield f"the SHA-256 is not that of {BUNDLED_TEXT.title}"
    num_bytes = manifest.get("bytes")
    if config.is_generated:
        expected = _generated(config)
        if (num := sum(config.part_examples)) > MOST_GENERATED:
            yield f"there are {num:,} generated windows, but only {MOST_GENERATED:,} differ"
    elif type(num_bytes) is int and num_bytes > 0:
        expected = _windows(TextWindows(num_bytes, config.size), config)
    else:
        yield f"bytes is {num_bytes!r:.60}, not a length"
        return
    yield from (
        f"{key} is {manifest.get(key)!r:.60}, but the text and the configuration give {value:,}"
        for key, value in expected.items()
        if manifest.get(key) != value
    )
    yield from (f"there are {expected[key]} {key}" for key in expected if expected[key] < _least(key))


def is_known(manifest: Manifest) -> bool:
    """Whether the number of bytes is known here."""
    return manifest.get("synthetic") is True or known_text(manifest) is not None


def has_like_parts(manifest: Manifest) -> bool:
    """Parts of a text follow one another and may be of different kinds; generated ones are of one source."""
    known = known_text(manifest)
    return manifest.get("synthetic") is True or (known is not None and known.like_parts)


def foreseen(data: DataConfig) -> dict[str, Any]:
    """What a rank would find: a text on the disk is known by its name; else it is as the configuration
    says."""
    known = _of_file(data)
    if known is not None:
        counts = {"bytes": known.bytes, **_windows(TextWindows(known.bytes, data.size), data)}
    else:
        counts = {**({} if data.is_generated else {"bytes": 0}), **_generated(data)}
    return {**data.manifest(known.sha256 if known else ""), **counts}


def summary(manifest: Manifest) -> str:
    """In one line: the text, the length of a window, and how many windows each part has."""
    counts = ", ".join(f"{manifest[f'{part}_examples']:,} {part}" for part in PARTS)
    return f"{manifest['name']}, windows of {manifest['size']:,} bytes: {counts}"


def error_limit(manifest: Manifest) -> ErrorLimit | None:
    """Generated text has a known entropy; nothing is known of an unknown text."""
    if manifest.get("synthetic") is True:
        least, source = LEAST_OF_ENTROPY * GENERATED_BITS, f"its entropy is {GENERATED_BITS} bits per byte"
        return ErrorLimit(least / BITS_OF_A_BYTE, source, is_proof=True)
    known = known_text(manifest)
    return None if known is None else known.error_limit


TEXT_FACTS = DataFacts(contradictions, is_known, has_like_parts, foreseen, summary, error_limit)


def _of_file(data: DataConfig) -> KnownText | None:
    """The known text that a configuration names: the bundled one without a path, else by the name of the
    file; None for any other."""
    if data.is_generated:
        return None
    if not data.path:
        return BUNDLED_TEXT
    return next((each for each in KNOWN_TEXTS if each.title == PurePath(data.path).name), None)


def _generated(config: DataConfig) -> dict[str, int]:
    """What a manifest says of generated text: its parts are as configured, and no byte is left out."""
    parts = {f"{part}_examples": number for part, number in zip(PARTS, config.part_examples)}
    return {"official_training_examples": sum(config.part_examples[:2]), **parts, "bytes_left_out": 0}


def _windows(found: TextWindows, config: DataConfig) -> dict[str, int]:
    """What a manifest says of a text that is divided so."""
    training, validation = config.training_examples or found.training, config.validation_examples
    parts = (training, validation or found.validation, found.test)
    return {
        "official_training_examples": found.official_training,
        **{f"{name}_examples": number for name, number in zip(PARTS, parts)},
        "bytes_left_out": found.left_out(sum(parts)),
    }


def _least(key: str) -> int:
    """The smallest value of a key that a run can work with."""
    return 0 if key == "bytes_left_out" else 1
