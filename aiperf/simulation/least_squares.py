"""Fits by which a run becomes assumptions: times that are no less than 0, and the law of errors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiperf.pretending.assumptions import Errors

Array = NDArray[Any]

POWERS = tuple(np.arange(0.1, 2.55, 0.1))
SIZE_POWERS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)
SIZES = 40
"""Numbers of images that are tried, evenly in their logarithm over what was seen and ten times beyond."""
LARGEST_SPREAD = 0.5


def not_negative(rows: Array, values: Array, needed: int) -> tuple[float, ...]:
    """x of least relative error of rows @ x, none below 0; the column `needed` is part of it. The sum of
    all is that of the values: a long run must come out as long as it was.

    Of so few columns every choice is tried.
    """
    best, least = np.zeros(rows.shape[1]), np.inf
    scale = np.maximum(rows.max(axis=0), 1e-300)
    weighed, ones = rows / scale / values[:, None], np.ones(len(values))
    others = [column for column in range(rows.shape[1]) if column != needed]
    for size in range(len(others) + 1):
        for chosen in combinations(others, size):
            columns = [needed, *chosen]
            if len(columns) > len(values):
                continue
            found, *_ = np.linalg.lstsq(weighed[:, columns], ones, rcond=None)
            left = float(((weighed[:, columns] @ found - 1) ** 2).sum())
            if (found >= 0).all() and found[0] > 0 and left < least:
                best, least = np.zeros(rows.shape[1]), left
                best[columns] = found / scale[columns]
    total = float((rows @ best).sum())
    return tuple(float(each) for each in best * (values.sum() / total if total else 1.0))


def fitted_errors(points: Sequence[tuple[int, float, float, int]], start: float) -> Errors:
    """Fits the law of errors to (images of the lineage, operations relative to the seed's, error, trial);
    `start` is chance."""
    images, relative, errors, trials = (np.array(column, dtype=float) for column in zip(*points))
    lowest, highest = max(1.0, images.min() / 10), images.max() * 10
    found, least = (0.0, 1.0, 1.0, 0.0), np.inf
    for size, power, size_power in product(np.geomspace(lowest, highest, SIZES), POWERS, SIZE_POWERS):
        left = (1 + images / size) ** -power
        share, told = relative**-size_power * (1 - left), errors - start * left
        floor = float(np.clip(share @ told / max(1e-12, share @ share), 0.0, 0.99 * start))
        off = float(((floor * share - told) ** 2).sum())
        if off < least:
            found, least = (floor, float(size), float(power), size_power), off
    floor, size, power, size_power = found
    left = (1 + images / size) ** -power
    foreseen = floor * relative**-size_power * (1 - left) + start * left
    ratios = np.log(np.maximum(errors, 1e-3) / np.maximum(foreseen, 1e-3))
    means = [ratios[trials == trial].mean() for trial in np.unique(trials)]
    return Errors(floor, size, power, size_power, min(LARGEST_SPREAD, float(np.std(means))))
