"""The configuration of a run on somebody's own images, from the images alone: `run --data DIR`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from aiperf.data.image_files import look
from aiperf.data.parts import SetFacts

LARGEST_SIDE = 64
"""With it, two minutes on a processor train something; for larger images, state data.size and a seed."""
VALIDATION_SHARE, MOST_VALIDATION = 10, 5_000
"""A tenth of the training part, and at most as many as tell errors apart: with 5,000 images, an error of 5 %
is known to 0.3 %."""
LEAST_VALIDATION, MOST_SHARE = 200, 4
"""Validation images of a small set: with 200, an error of 20 % is known to 3 %; but at most a quarter of the
set."""
TRIAL_IMAGES = 20_000
"""Shown by a trial of the first round: enough to learn something, seconds on an accelerator."""
MOST_PASSES = 60
"""Passes over a set of so few images that more would teach nothing new."""
ROUNDS = (1, 2, 4)
"""Later rounds are longer, as in the other presets."""


def inferred(found: SetFacts, stated: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of a configuration by their dotted names; `stated` are those that a person gave."""
    total = len(found.training.labels)
    held_back = stated.get("data.validation_examples", _validation_examples(found))
    trained_on = stated.get("data.training_examples") or max(total - held_back, 1)
    passes = max(1, min(round(TRIAL_IMAGES / trained_on), MOST_PASSES))
    return {
        "data.name": found.training.name,
        "data.channels": found.channels,
        "data.size": min(found.size, LARGEST_SIDE),
        "data.classes": len(found.training.used_labels),
        "data.validation_examples": held_back,
        "training.epochs": [passes * length for length in ROUNDS],
    }


def _validation_examples(found: SetFacts) -> int:
    """The share, but at least so large that the rarest class has one, and training as many as validation."""
    by_class = np.bincount(found.training.labels)
    total = int(by_class.sum())
    small = min(LEAST_VALIDATION, total // MOST_SHARE)
    wanted = max(small, min(total // VALIDATION_SHARE, MOST_VALIDATION))
    return max(1, min(max(wanted, -(-total // int(by_class.min()))), total // 2))


def infer(folder: str, stated: str) -> dict[str, Any]:
    """What `inferred` finds in a folder; `stated` is JSON. It is called in a process of its own."""
    return inferred(look(Path(folder)), json.loads(stated))
