"""The shared state of the tests of one scenario, and the speed of the network before the first test."""

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
"""Minimum time in seconds and number of repetitions of the warm-up, for each number of samples at once."""
TELEMETRY_SECONDS = 2.5
"""Time in seconds for which sensors are read before and after a test. They are read once per second, and the
energy of a test needs a reading on both sides of its ends."""


@dataclass(frozen=True)
class WarmSpeed:
    """Speed of the network after the warm-up, before any test."""

    one_seconds: float
    """Median time for one sample in seconds."""
    query_seconds: float
    """Shortest time for a query of the scenario in seconds."""
    samples_per_second: float
    """Highest rate with as many samples at once as the network can take."""


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
        """Runs a test with the current settings. Returns LoadGen's verdict, and the times of day in seconds
        at the beginning and the end."""
        began = time.time()
        logs = self.bench.test(self.system, name)
        ended = time.time()
        return read_detail(detail_log(logs)), (began, ended)

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """A context in which the readings of the device's sensors, if it has any, are written next to the
        logs."""
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
    """Answers queries with every number of samples that the tests will use, so that no kernel or buffer is
    made for the first time during a test. If the number of threads can be chosen, the fastest one for a query
    is kept."""
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
