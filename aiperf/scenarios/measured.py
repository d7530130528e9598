"""One scenario: what is asked of the process that measures it, and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aiperf.scenarios.detail_log import Detail
from aiperf.scenarios.latencies import Latencies
from aiperf.tally import Tally

PERFORMANCE, ACCURACY, TELEMETRY = "performance", "accuracy", "telemetry.jsonl"
"""Beside the logs of a scenario: those of the test that counts, those of the answers to all samples, and what
the device's sensors told meanwhile."""


@dataclass(frozen=True)
class Request:
    """To the process of one scenario: LoadGen reads its own configuration at the first call of a process
    only, and a second scenario would silently get other seeds and tests of 10 s."""

    directory: str
    """The run's."""
    trial: int
    scenario: str
    seconds: float
    latency_seconds: float
    """Of a Server test: the bound of its 99th percentile."""
    queries_per_second: float | None
    """Of a Server test; None: the highest that passes is searched for."""
    accuracy: bool
    """Whether the whole test part is answered as well."""
    device: str
    """Its kind."""
    data: str
    """Where the examples are; empty: where the run had them."""


@dataclass(frozen=True)
class Probe:
    """One test of a search for the highest rate."""

    queries_per_second: float
    seconds: float
    """Asked for."""
    valid: bool
    percentile_seconds: float
    """Of the latencies, the 99th."""


@dataclass(frozen=True)
class Accuracy:
    """All test examples, answered under LoadGen's AccuracyOnly mode."""

    found: Tally
    """From LoadGen's accuracy log."""
    recorded: Tally | None
    """In the journal; None of a trial that was not tested there."""
    latencies: Latencies
    """By our own stopwatch."""


@dataclass(frozen=True)
class Measured:
    """What the process of one scenario found."""

    device: str
    threads: int
    """0 where the device is not a processor."""
    format: str
    software: Mapping[str, str]
    tensor_ops: int
    """Of one sample."""
    test_seconds: float
    """That LoadGen was asked for."""
    latency_seconds: float
    """The bound of a Server test."""
    detail: Detail | None
    """None where the search found no rate, which `nothing` then says."""
    stopwatch: Latencies | None
    """Our own, around each query from its issue to its completion."""
    span: tuple[float, float]
    """Time of day in seconds, around the test."""
    device_id: str
    """By which its sensors' readings are found; empty where it has none that are read."""
    queries_per_second: float | None
    """Of a Server test."""
    probes: tuple[Probe, ...]
    nothing: str
    accuracy: Accuracy | None
