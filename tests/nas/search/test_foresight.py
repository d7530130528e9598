"""Whom foresight takes for a parent: by a law where a curve ends early, and by how sure the law is."""

from __future__ import annotations

import random

from aiperf.config import BoundsConfig
from nas.search import Foresight, Observation
from nas.search.evolution import _foreseen
from nas.seeds import residual


def falling(
    limit: float, steps: int, noise: float = 0.0, share: float = 1.0
) -> tuple[tuple[int, float], ...]:
    """A law that is at `limit` + 0.4 (a share of it) after 1,000 images, and at `limit` in the end."""
    return tuple(
        (1000 * step, limit + share * 0.4 / step + noise * (-1) ** step) for step in range(1, steps + 1)
    )


def foreseen(first: Observation, second: Observation) -> int | None:
    search = Foresight(residual(), 1, BoundsConfig(), population=10)
    for number in range(3):
        search.ask(number, 1)
    search.tell(first)
    search.tell(second)
    return search.ask(3, 1).parent


def test_foresight_compares_at_the_longest_schedule() -> None:
    """One has trained for long, to 0.14; the other is behind it at any time seen, and will be below that."""
    long = Observation(1, 40_000, falling(0.13, 40, share=0.2))
    promising, hopeless = Observation(2, 8_000, falling(0.10, 8)), Observation(2, 8_000, falling(0.15, 8))
    assert foreseen(long, promising) == 2
    assert foreseen(long, hopeless) == 1
    assert promising.error_within(8_000) > long.error_within(8_000)


def test_foresight_trusts_the_surer_of_two_like_laws() -> None:
    noisy, sure = Observation(1, 8_000, falling(0.10, 8, 0.02)), Observation(2, 8_000, falling(0.102, 8))
    longest = Observation(0, 40_000, falling(0.5, 40))
    search = Foresight(residual(), 1, BoundsConfig(), population=10)
    for number in range(4):
        search.ask(number, 1)
    for each in (longest, noisy, sure):
        search.tell(each)
    living = [search._living[number] for number in (1, 2, 0)]
    everyone = random.Random(1)
    chosen = {search.choose(everyone, living).observation.number for _ in range(50)}
    assert 2 in chosen
    assert min(living[:2], key=lambda each: _foreseen(each, 40_000)).observation.number == 2
