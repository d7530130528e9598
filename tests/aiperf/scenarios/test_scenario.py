"""What LoadGen receives besides its built-in configuration, and latencies as it computes them."""

from __future__ import annotations

import pytest

from aiperf.scenarios.latencies import Latencies
from aiperf.scenarios.scenario import SCENARIOS, user_conf


@pytest.mark.parametrize(
    ("name", "samples", "least"),
    [
        ("single-stream", 1_197, None),
        ("server", 1_197, 662),
        ("offline", 1_197, 1197),  # the whole set, where it is smaller than MLPerf's number of samples
        ("offline", 50_000, 24576),
    ],
)
def test_the_user_conf(name: str, samples: int, least: int | None) -> None:
    loadgen = {"single-stream": "SingleStream", "server": "Server", "offline": "Offline"}[name]
    lines = [f"{loadgen}.min_duration = 600000", f"{loadgen}.performance_sample_count_override = 99"]
    lines += [f"{loadgen}.min_query_count = {least}"] if least else []
    assert user_conf(SCENARIOS[name], 600.0, samples, 99) == "".join(f"*.{line}\n" for line in lines)


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
