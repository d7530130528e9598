"""scikit-learn's handwritten digits: 1,797 real images of 8 x 8, part of the library, no download.

Source: Alpaydin and Kaynak, "Optical Recognition of Handwritten Digits", UCI repository, 1998; the
test part of that set. It has no official split of its own, so the repository pins one.
"""

from __future__ import annotations

import gzip
import json
import zlib
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from aiperf.data.arrays import Part, assemble, fingerprint
from aiperf.data.parts import contradictions, refuse, stratified
from aiperf.data.splits import Data
from aiperf.errors import DataError
from aiperf.tasks.data import DataConfig
from aiperf.tasks.images.known_sets import DIGITS

WHERE = "scikit-learn's digits"
"""The set, for the errors."""
SHA256 = DIGITS.sha256
"""What `fingerprint` gives for the images, as bytes 0 … 255, with their labels."""


def load_digits_set(config: DataConfig, device: torch.device) -> Data:
    """The images of the pinned lists; for training and validation fewer, stratified, if the configuration
    says so. Raises DataError with everything that it states otherwise."""
    whole = _digits()
    texts = contradictions(config, whole.facts("digits"))
    digest = fingerprint(whole)
    if digest != SHA256:
        raise DataError(
            f"{WHERE}: SHA-256 {digest} instead of {SHA256}; install the scikit-learn of constraints.txt"
        )
    pinned = _pinned()
    parts = []
    for name, wanted in (("training", config.training_examples), ("validation", config.validation_examples)):
        try:
            parts.append(_at_most(whole[pinned[name]], wanted, name))
        except DataError as error:
            texts.append(str(error))
    refuse(texts)
    training, validation = parts
    official = len(pinned["training"]) + len(pinned["validation"])
    return assemble(config, device, (training, validation, whole[pinned["test"]]), digest, official)


def _digits() -> Part:
    """What `sklearn.datasets.load_digits` reads, without the second and a half that its import takes."""
    library = find_spec("sklearn")
    if library is None or library.origin is None:
        raise DataError(f"{WHERE}: scikit-learn is not installed; remedy: pip install scikit-learn")
    path = Path(library.origin).parent / "datasets" / "data" / "digits.csv.gz"
    try:
        with gzip.open(path, "rt", encoding="ascii") as lines:
            table = np.array([line.split(",") for line in lines], dtype=np.float64).reshape(-1, 8 * 8 + 1)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(
            f"{WHERE}: {path} cannot be read: {error}; install the scikit-learn of constraints.txt"
        ) from None
    # Ink has 17 levels, 0 … 16.
    images = np.round(table[:, :-1].reshape(-1, 8, 8, 1) * (255 / 16)).astype(np.uint8)
    return Part(images, table[:, -1].astype(np.int64), WHERE)


def _pinned() -> dict[str, np.ndarray]:
    """The numbers of the images for training, validation and test, by part."""
    text = (resources.files("aiperf") / "presets" / "digits_split.json").read_text(encoding="utf-8")
    return {name: np.array(indices, dtype=np.int64) for name, indices in json.loads(text)["indices"].items()}


def _at_most(part: Part, wanted: int, name: str) -> Part:
    """`wanted` images of a pinned part, stratified by class; all if it is 0. Raises DataError if there
    are fewer, or a class would have none."""
    if wanted > len(part.labels):
        raise DataError(
            f"{WHERE}: data.{name}_examples is {wanted}, but the pinned list has {len(part.labels)}; reduce "
            f"it"
        )
    found = part[stratified(part.labels, wanted)] if wanted else part
    if missing := set(part.labels.tolist()) - set(found.labels.tolist()):
        raise DataError(
            f"{WHERE}: class {min(missing)} has no image among the {wanted} of {name}; "
            f"raise data.{name}_examples"
        )
    return found
