"""Figures as people read them."""

from __future__ import annotations

import random

from aiperf import wording
from aiperf.wire.trial import HyperParameters, Trial, origin
from nas import morphisms
from nas.morphisms import Morphism
from nas.seeds import residual
from tests.tables import ComesTo


def comes_from(parent: int | None, *kinds: type[Morphism]) -> str:
    """An architecture with a parent, or the seed, and an edit of each of these kinds."""
    edits = tuple(kind.propose(residual(), random.Random(1)) for kind in kinds)
    return origin(Trial(7, parent, edits, HyperParameters(0.1, 8), 1, 1, 1))


def test_what_people_read(comes_to_what_was_read: ComesTo) -> None:
    """A figure has no exponent unless it would fill a page, a share two digits that matter, a duration and an
    interval their unit once."""
    names = {**vars(wording), **vars(morphisms), "comes_from": comes_from}
    comes_to_what_was_read("wording.txt", names)
