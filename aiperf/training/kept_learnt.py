"""The file that a pretended trial leaves: a real one, with one number in place of all weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from aiperf.errors import DataError
from aiperf.pretending.course import Learnt
from aiperf.training.kept_network import Kept, read_any_kept, write_kept

EXAMPLES = "learnt.examples"
"""Of the one array: on how many examples the network and its ancestors were trained."""


def write_learnt(path: Path, learnt: Learnt) -> str:
    """As `write_kept`."""
    return write_kept(path, Kept(learnt.graph, {EXAMPLES: np.array([learnt.examples], dtype=np.int64)}, {}))


def read_learnt(path: Path) -> Learnt:
    """Raises DataError for a file that is absent, damaged, or of a trial that was trained."""
    kept = read_any_kept(path)
    if kept.weights.keys() != {EXAMPLES}:
        raise DataError(f"{path}: no pretended trial left this file")
    return Learnt(kept.graph, int(kept.weights[EXAMPLES][0]))
