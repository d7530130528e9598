"""What LoadGen is told beside its built-in configuration, and latencies as it computes them."""

from __future__ import annotations

import pytest

from aiperf.scenarios.latencies import Latencies
from aiperf.scenarios.scenario import SCENARIOS, user_conf


@pytest.mark.parametrize(
    ("name", "samples", "lines"),
    [
        (
            "single-stream",
            1_197,
            ["*.SingleStream.min_duration = 600000", "*.SingleStream.performance_sample_count_override = 99"],
        ),
        (
            "server",
            1_197,
            [
                "*.Server.min_duration = 600000",
                "*.Server.performance_sample_count_override = 99",
                "*.Server.min_query_count = 662",
            ],
        ),
        (
            "offline",
            1_197,  # the whole set, where it is smaller than MLPerf's number of samples
            [
                "*.Offline.min_duration = 600000",
                "*.Offline.performance_sample_count_override = 99",
                "*.Offline.min_query_count = 1197",
            ],
        ),
        (
            "offline",
            50_000,
            [
                "*.Offline.min_duration = 600000",
                "*.Offline.performance_sample_count_override = 99",
                "*.Offline.min_query_count = 24576",
            ],
        ),
    ],
)
def test_the_user_conf(name: str, samples: int, lines: list[str]) -> None:
    assert user_conf(SCENARIOS[name], 600.0, samples, 99) == "".join(f"{line}\n" for line in lines)


def test_percentiles_are_those_of_the_sorted_latencies() -> None:
    """Of 1,000 latencies, from the lowest, LoadGen takes those with 500, 900, … below them."""
    assert Latencies.of(float(value) for value in reversed(range(1000))) == Latencies(
        number=1000,
        mean=499.5,
        least=0.0,
        most=999.0,
        percentiles={
            "50.00": 500.0,
            "90.00": 900.0,
            "95.00": 950.0,
            "97.00": 970.0,
            "99.00": 990.0,
            "99.90": 999.0,
        },
    )
