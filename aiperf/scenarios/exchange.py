"""Request to the process that measures one scenario, and its answer."""

from __future__ import annotations

from collections.abc import Mapping

from aiperf.scenarios.detail_log import Detail
from aiperf.scenarios.latencies import Latencies
from aiperf.tasks.tally import Tally
from aiperf.wire.reports import Processor
from nas.frozen import frozen

PERFORMANCE, ACCURACY, TELEMETRY = "performance", "accuracy", "telemetry.jsonl"
"""Names in the folder of a scenario: the logs of the test that counts, the logs of the accuracy test, and the
readings of the device's sensors during the tests."""


@frozen
class Request:
    """Request to the process of one scenario. Each scenario has a process of its own, because LoadGen reads
    its configuration only at the first call in a process, and a second scenario would silently get other
    seeds and tests of 10 s."""

    directory: str
    """Path of the run directory."""
    trial: int
    scenario: str
    """Name of the scenario, a key of `SCENARIOS`."""
    seconds: float
    """Minimum duration of a test in seconds."""
    latency_seconds: float
    """Bound on the 99th percentile of the latency in a Server test."""
    queries_per_second: float | None
    """Query rate of a Server test; None: the highest rate that passes is searched for."""
    accuracy: bool
    """Whether the accuracy on the whole test part is measured as well."""
    device: str
    """Kind of device."""
    data: str
    """Path of the examples; empty: the run's own path."""


@frozen
class Probe:
    """One test of a search for the highest rate."""

    queries_per_second: float
    seconds: float
    """Requested minimum duration of the test."""
    valid: bool
    percentile_seconds: float
    """99th percentile of the latency."""


@frozen
class Accuracy:
    """Result of LoadGen's AccuracyOnly mode on all test examples."""

    found: Tally
    """Tally of the answers in LoadGen's accuracy log."""
    recorded: Tally | None
    """Tally in the journal; None for a trial that was not tested in the run."""
    latencies: Latencies
    """Latencies by our own stopwatch."""


@frozen
class Measured:
    """Measurements of one scenario."""

    device: str
    threads: int
    """Number of threads; 0 if the device is not a CPU."""
    format: str
    software: Mapping[str, str]
    tensor_ops: int
    """Tensor operations of one sample."""
    test_seconds: float
    """Requested minimum duration of the test."""
    latency_seconds: float
    """Bound on the 99th percentile of the latency in a Server test."""
    detail: Detail | None
    """LoadGen's verdict; None if the search found no rate, for the reason in `nothing`."""
    stopwatch: Latencies | None
    """Latencies by our own stopwatch, around each query from its issue to its completion."""
    span: tuple[float, float]
    """Times of day in seconds at the beginning and the end of the test."""
    device_id: str
    """Identifier of the device in the readings of the sensors; empty if none are read."""
    queries_per_second: float | None
    """Query rate of a Server test."""
    probes: tuple[Probe, ...]
    """All tests of a search."""
    nothing: str
    """Reason why a search found no rate; empty if it did."""
    accuracy: Accuracy | None
    """None if it was not requested."""
    processor: Processor | None = None
    """CPU that computed; None if the device is not a CPU, or the result is older than this field."""
