"""The four scenarios of MLPerf Inference, and how long a test of one must last.

Source: mlcommons/inference, loadgen/mlperf.conf of August 2026, which LoadGen holds as its built-in
configuration, and loadgen/early_stopping.cc.
"""

from __future__ import annotations

from collections.abc import Mapping

from nas.frozen import frozen

RULE_SECONDS = 600.0
"""Minimum duration in seconds of a test of any scenario by MLPerf's rules; results of shorter tests are
labelled."""
OFFLINE_SAMPLES = 24_576
"""Minimum number of samples of an Offline test; a smaller set is used whole."""
SERVER_QUERIES = 662
"""Minimum number of queries of a Server test, as mlperf.conf has it for MultiStream. With fewer than 459
LoadGen's early stopping cannot estimate the 99th percentile, and with 459 only if no query is late."""


@frozen
class Scenario:
    """A scenario: how queries arrive, and which figure is reported."""

    name: str
    """Name in our commands."""
    loadgen: str
    """Name in LoadGen."""
    samples_per_query: int
    """Number of samples per query; 0: all samples in one query."""
    percentile: str | None
    """Percentile of the latency that is the scenario's figure, or on which it has a bound; None without
    one."""
    figure: str
    """The figure that a submission reports, in words."""


SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario("single-stream", "SingleStream", 1, "90.00", "90th percentile of the latency of one sample"),
        Scenario("multi-stream", "MultiStream", 8, "99.00", "99th percentile of the latency of 8 samples"),
        Scenario("server", "Server", 1, "99.00", "highest rate whose 99th percentile is within the bound"),
        Scenario("offline", "Offline", 0, None, "samples per second"),
    )
}
"""The scenarios by name."""


def user_conf(scenario: Scenario, seconds: float, samples: int, loaded: int) -> str:
    """The text of LoadGen's user.conf for a set of `samples` samples, of which `loaded` are loaded at
    once."""
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
