"""The four scenarios of MLPerf Inference, and how long a test of one must last.

Source: mlcommons/inference, loadgen/mlperf.conf of August 2026, which LoadGen holds as its built-in
configuration, and loadgen/early_stopping.cc.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

RULE_SECONDS = 600.0
"""A test of any scenario; a shorter one is labelled so."""
OFFLINE_SAMPLES = 24_576
"""Of an Offline test at the least, or the whole set where it has fewer."""
SERVER_QUERIES = 662
"""Of a Server test at the least, as mlperf.conf has it for MultiStream: of fewer than 459 LoadGen's early
stopping cannot tell the 99th percentile, and of so few only where none is late."""


@dataclass(frozen=True)
class Scenario:
    """How queries arrive."""

    name: str
    """As our command calls it."""
    loadgen: str
    """As LoadGen does."""
    samples_per_query: int
    """0: all in one query."""
    percentile: str | None
    """Of the latencies, the one that is the scenario's figure or bound; None where there is none."""
    figure: str
    """What a submission reports."""


SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario("single-stream", "SingleStream", 1, "90.00", "90th percentile of the latency of one sample"),
        Scenario("multi-stream", "MultiStream", 8, "99.00", "99th percentile of the latency of 8 samples"),
        Scenario("server", "Server", 1, "99.00", "highest rate whose 99th percentile is within the bound"),
        Scenario("offline", "Offline", 0, None, "samples per second"),
    )
}
"""By name."""


def user_conf(scenario: Scenario, seconds: float, samples: int, loaded: int) -> str:
    """The text of LoadGen's user.conf for a set of so many samples, so many of which are loaded at once."""
    name = scenario.loadgen
    lines = [
        f"*.{name}.min_duration = {round(1000 * seconds)}",
        f"*.{name}.performance_sample_count_override = {loaded}",
    ]
    if scenario.name == "offline":
        lines.append(f"*.{name}.min_query_count = {min(OFFLINE_SAMPLES, samples)}")
    if scenario.name == "server":
        lines.append(f"*.{name}.min_query_count = {SERVER_QUERIES}")
    return "\n".join(lines) + "\n"
