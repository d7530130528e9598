"""What the tests of one scenario share, and how fast the network is before the first of them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

from aiperf.inference.bench import Bench, detail_log
from aiperf.inference.library import Library
from aiperf.inference.systems import System
from aiperf.scenarios.detail_log import Detail, read_detail
from aiperf.scenarios.measured import TELEMETRY, Request
from aiperf.telemetry.recorder import Recorder
from aiperf.training.found_network import FoundNetwork

WARM_UP_SECONDS, WARM_UP_TIMES = 1.0, 3
"""For each number of samples at once: so long, and so often, at the least."""
TELEMETRY_SECONDS = 2.5
"""Before and after a test: sensors are read once a second, and around both ends of a span."""


@dataclass(frozen=True)
class WarmSpeed:
    """Of a warm network, before any test."""

    one_seconds: float
    """The median for one sample."""
    query_seconds: float
    """The fastest for a query of the scenario."""
    samples_per_second: float
    """With as many samples at once as the network takes; the fastest."""


@dataclass(frozen=True)
class Scene:
    """One network in one scenario."""

    request: Request
    folder: Path
    found: FoundNetwork
    library: Library
    system: System
    bench: Bench
    speed: WarmSpeed

    def test(self, name: str) -> tuple[Detail, tuple[float, float]]:
        """LoadGen's verdict on a test with the settings as they are now, and the time of day around it."""
        began = time.time()
        logs = self.bench.test(self.system, name)
        ended = time.time()
        return read_detail(detail_log(logs)), (began, ended)

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """What the device's sensors tell is written beside the logs meanwhile, where it has any."""
        device = self.found.device
        if not (device.sensors and device.identity):
            yield
            return
        recorder = Recorder(self.folder / TELEMETRY, device.sensors, [device.identity])
        try:
            time.sleep(TELEMETRY_SECONDS)
            yield
            time.sleep(TELEMETRY_SECONDS)
        finally:
            recorder.close()


def warmed_up(system: System, samples_per_query: int) -> WarmSpeed:
    """Answers samples of all numbers that the tests will ask for, until nothing is made for the first time.

    Where the number of threads is ours to choose, the fastest for a query stays.
    """
    system.library.load(range(system.most))
    seconds: dict[int, float] = {}
    for count in system.device.thread_counts:
        system.device.use_threads(count)
        seconds[count] = min(_times(system, samples_per_query))
    if seconds:
        system.device.use_threads(min(seconds, key=lambda count: seconds[count]))
    one, query, many = (_times(system, number) for number in (1, samples_per_query, system.most))
    return WarmSpeed(median(one), min(query), system.most / min(many))


def _times(system: System, number: int) -> Sequence[float]:
    number, found = min(number, system.most), list[float]()
    batch = system.library.samples(range(number))
    with system.computing():
        while len(found) < WARM_UP_TIMES or sum(found) < WARM_UP_SECONDS:
            began = perf_counter()
            system.answering(batch)
            found.append(perf_counter() - began)
    return found[len(found) // 2 :]
