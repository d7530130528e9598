"""Python's cyclic garbage collector in a process that keeps nearly all that it makes, such as a master."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SETTLED = (100_000, 50, 1000)
"""Thresholds of the collector. A master keeps its trials and their networks, millions of objects, and makes
few cycles. With the default thresholds, collections took a third of the time of a proposal with 4,096 groups
(docs/scaling.md)."""


@contextmanager
def few_collections() -> Iterator[None]:
    """Excludes what exists from collections, and makes them rare, until the end of the block."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*SETTLED)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
