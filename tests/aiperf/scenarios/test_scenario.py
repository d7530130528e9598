"""What LoadGen receives besides its built-in configuration, and latencies as it computes them."""

from __future__ import annotations

from aiperf.scenarios.latencies import Latencies
from aiperf.scenarios.scenario import SCENARIOS, user_conf
from tests.tables import ComesTo


def test_the_user_conf(comes_to_what_was_read: ComesTo) -> None:
    def conf(name: str, samples: int) -> list[str]:
        """In a set of so many samples, of which 99 are held in memory, for ten minutes."""
        return user_conf(SCENARIOS[name], 600.0, samples, 99).splitlines(keepends=True)

    comes_to_what_was_read("user_conf.txt", {"conf": conf})


def test_percentiles_are_those_of_the_sorted_latencies() -> None:
    """LoadGen takes those of 1,000 latencies that have 500, 900, … below them."""
    places = {"50.00": 500, "90.00": 900, "95.00": 950, "97.00": 970, "99.00": 990, "99.90": 999}
    assert Latencies.of(float(value) for value in reversed(range(1000))) == Latencies(
        number=1000,
        mean=499.5,
        least=0.0,
        most=999.0,
        percentiles=places,
    )
