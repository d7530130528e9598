"""What is known of sets of images without reading them: how many each has, and its classes' sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiperf.tasks.data import PARTS, DataConfig
from aiperf.tasks.images.known_sets import DIGITS, FIXED_FORMS, KNOWN, known_set
from aiperf.tasks.task import DataFacts, Manifest, differences

MOST_GENERATED = 1 << 21
"""Generated images whose noise differs. More would show images of the training part in the test once more."""


def contradictions(config: DataConfig, manifest: Manifest) -> Iterator[str]:
    """Yields what cannot be in a manifest of images, by the configuration, by arithmetic, and by what is
    known of the set."""
    for check in (_against_configuration, _by_class, _of_its_set):
        yield from check(config, manifest)


def is_known(manifest: Manifest) -> bool:
    """Whether the number of images is known here. The test images of a known set are like those of its
    training part, so this holds for `has_like_parts`, too."""
    return manifest.get("synthetic") is True or known_set(manifest) is not None


def foreseen(data: DataConfig) -> dict[str, Any]:
    """One's own set has as many as the configuration says."""
    known = next((each for each in KNOWN if each.name == data.name and each.classes == data.classes), None)
    official = (
        known.official_training_examples if known else data.training_examples + data.validation_examples
    )
    left = official - data.validation_examples
    images = {
        "training": min(data.training_examples or left, left),
        "validation": data.validation_examples,
        "test": known.test_examples if known else data.test_examples,
    }
    return {
        **data.manifest(known.sha256 if known else ""),
        "official_training_examples": official,
        **{f"{part}_examples": number for part, number in images.items()},
        **{f"{part}_examples_per_class": _a_class(number, data.classes) for part, number in images.items()},
        **({"test_examples_per_class": list(known.test_examples_per_class)} if known else {}),
    }


def summary(manifest: Manifest) -> str:
    """In one line: the set, its classes, the shape of an image, and how many images each part has."""
    counts = ", ".join(f"{manifest[f'{part}_examples']:,} {part}" for part in PARTS)
    side, channels = manifest["size"], manifest["channels"]
    shape = f"{side} x {side}, {channels} channel{'s' * (channels > 1)}"
    return f"{manifest['name']}, {manifest['classes']:,} classes, {shape}; {counts} images"


IMAGE_FACTS = DataFacts(contradictions, is_known, is_known, foreseen, summary)


def _a_class(images: int, classes: int) -> list[int]:
    """The smallest and the largest class, of as equal ones as can be."""
    return [images // classes, -(-images // classes)]


def _against_configuration(config: DataConfig, manifest: Manifest) -> Iterator[str]:
    """What a manifest has otherwise than configured, and whether as many images are used as the
    configuration leaves."""
    yield from config.disagreements(manifest, *_fixed_examples(config))
    used = manifest.get("training_examples", 0) + manifest.get("validation_examples", 0)
    official = manifest.get("official_training_examples", used)
    # What validation leaves is trained on, but of the digits a list.
    all_used = not (config.training_examples or config.is_generated or config.name == DIGITS.name)
    if used > official or (all_used and used < official):
        yield f"{used} images are used for training and validation, but the set has {official}"


def _fixed_examples(config: DataConfig) -> Iterator[str]:
    """The numbers of examples that the configuration fixes, by their keys."""
    yield "validation_examples"
    if config.training_examples:
        yield "training_examples"
    if config.is_generated:
        yield "test_examples"


def _by_class(config: DataConfig, manifest: Manifest) -> Iterator[str]:
    """The smallest and the largest class leave room for all images of a part, and no more."""
    others = config.classes - 1  # each of them is at least as large as the smallest, at most as the largest
    for part in PARTS:
        images, sizes = manifest.get(f"{part}_examples", 0), manifest.get(f"{part}_examples_per_class")
        if images < 1:
            yield f"there are {images} {part} images"
        if not (isinstance(sizes, list) and len(sizes) == 2 and all(type(size) is int for size in sizes)):
            yield f"{part}_examples_per_class is {sizes!r:.60}, not two class sizes"
        elif not 0 <= sizes[0] <= sizes[1] or not (
            sizes[0] * others + sizes[1] <= images <= sizes[1] * others + sizes[0]
        ):
            yield f"{images} {part} images do not fit {config.classes} classes of {sizes[0]} to {sizes[1]}"


def _of_its_set(config: DataConfig, manifest: Manifest) -> Iterator[str]:
    """What contradicts the set that a manifest claims to be. Its files may hold another number of images
    only if the form allows it."""
    if config.is_generated:
        yield from _of_the_generated(config, manifest)
    elif (known := known_set(manifest) or FIXED_FORMS.get(config.name)) is not None:
        yield from differences(manifest, known)
        if known is DIGITS and manifest.get("sha256") != DIGITS.sha256:  # no other ones are ever read
            yield f"the SHA-256 is not that of {DIGITS.title}"


def _of_the_generated(config: DataConfig, manifest: Manifest) -> Iterator[str]:
    """Image g is of class g modulo classes, and the parts follow one another."""
    if manifest.get("official_training_examples") != config.training_examples + config.validation_examples:
        official = manifest.get("official_training_examples")
        yield f"official_training_examples is {official!r}, which generated images do not have"
    if (num := sum(config.part_examples)) > MOST_GENERATED:
        yield f"there are {num:,} generated images, but only {MOST_GENERATED:,} differ"
    for part, images in zip(PARTS, config.part_examples):
        each, more = divmod(images, config.classes)
        if manifest.get(f"{part}_examples_per_class") != [each, each + bool(more)]:
            yield f"{part}_examples_per_class does not fit generated images"
