"""A few values: whether all are known, and which of them are too low.

What is too low is decided by medians and median deviations, which an outlier cannot move.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

DEVIATIONS = 3.0
LEAST_SHARE = 0.05
"""A value is too low if it is below the median by more than `DEVIATIONS` robust standard deviations and by
more than this share of it."""
LEAST_NUMBER = 4
"""Fewest values that are compared: of fewer, it is not known which one is the odd one."""
# 1.4826 makes a median deviation the standard deviation of a normal distribution; in small samples it comes
# out too small by these factors (Croux and Rousseeuw, "Time-efficient algorithms for two highly robust
# estimators of scale", COMPSTAT 1992).
NORMAL = 1.4826
SMALL: Mapping[int, float] = {4: 1.363, 5: 1.206, 6: 1.200, 7: 1.140, 8: 1.129, 9: 1.107}

Array = NDArray[np.float64]
T = TypeVar("T")


def all_known(values: Sequence[T | None]) -> list[T] | None:
    """The values; None if one of them is not known, or if there are none, because a sum or a median of the
    others would be taken for that of all."""
    known = [value for value in values if value is not None]
    return known if known and len(known) == len(values) else None


def below(values: Array, own: Array) -> Iterator[int]:
    """Indices of the logarithms that are too low. `own` is the deviation of each by itself."""
    if len(values) < LEAST_NUMBER:
        return
    distance = np.median(values) - values
    allowed = np.maximum(DEVIATIONS * np.maximum(deviation(values), own), -math.log1p(-LEAST_SHARE))
    yield from (int(index) for index in np.nonzero(distance > allowed)[0])


def deviation(values: Array) -> float:
    """The robust standard deviation of the values."""
    number = len(values)
    factor = SMALL.get(number, number / (number - 0.8) if number > 9 else SMALL[4])
    return NORMAL * factor * median(np.abs(values - median(values)))


def median(values: Array | Sequence[float]) -> float:
    """The value of `np.median`, to its last bit. Of few values it takes a fifth of the time: a long run has
    a hundred thousand times a few."""
    ordered, middle = np.sort(values), len(values) // 2
    if np.isnan(ordered[-1]):  # which are sorted last
        return math.nan
    return float(ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2)
