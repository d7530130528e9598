"""Search for the highest query rate of the Server scenario whose latencies stay within the bound."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from aiperf.inference.scene import Scene
from aiperf.scenarios.detail_log import Detail
from aiperf.scenarios.measured import PERFORMANCE, Probe
from aiperf.scenarios.rate_search import highest_rate
from aiperf.scenarios.scenario import SERVER_QUERIES

SHORT_TEST = 1 / 20
"""Length of a short test in a search, as a fraction of the full length; it is at least `LEAST_SECONDS`."""
LEAST_SECONDS = 2.0
FIRST_LOAD, LEAST_LOAD = 0.5, 0.05
"""First rate of a search, as a fraction of the rate in large batches; and lowest rate, as a fraction of the
rate at which single samples follow each other without a pause: below it, hardly any sample waits for
another."""


@dataclass(frozen=True)
class RateFound:
    """Result of a search."""

    rate: float | None
    """Highest rate that passed, in queries per second; None if none did, for the reason in `nothing`."""
    detail: Detail | None
    """LoadGen's verdict on the test of full length at that rate."""
    span: tuple[float, float]
    """Times of day in seconds at the beginning and the end of that test."""
    probes: tuple[Probe, ...]
    nothing: str = ""


def search(scene: Scene) -> RateFound:
    """Tests rates until one passes a test of full length, or none is left."""
    one, bound = scene.speed.one_seconds, scene.request.latency_seconds
    none = f"no rate within the bound of {1000 * bound:.4g} ms"
    if one > bound:  # half of all queries would be late even if none waited
        return RateFound(None, None, (0.0, 0.0), (), f"{none}: one sample alone takes {1000 * one:.4g} ms")
    probes, last = list[Probe](), list[tuple[Detail, tuple[float, float]]]()

    def passes(rate: float, full: bool) -> bool:
        last.append(_tested(scene, f"rate-{len(probes)}", rate, full))
        probes.append(_probe(scene, rate, last[-1][0]))
        return probes[-1].valid

    first = FIRST_LOAD * scene.speed.samples_per_second
    rate = highest_rate(passes, first, min(first, LEAST_LOAD / one))
    if rate is None:
        lowest = min(probe.queries_per_second for probe in probes)
        return RateFound(None, None, (0.0, 0.0), tuple(probes), f"{none}, down to {lowest:.4g} queries/s")
    (scene.folder / f"rate-{len(probes) - 1}").rename(scene.folder / PERFORMANCE)
    return RateFound(rate, *last[-1], tuple(probes))


def _tested(scene: Scene, name: str, rate: float, full: bool) -> tuple[Detail, tuple[float, float]]:
    settings, whole = scene.bench.settings, scene.request.seconds
    seconds = whole if full else min(whole, max(LEAST_SECONDS, SHORT_TEST * whole))
    settings.server_target_qps, settings.min_duration_ms = rate, round(1000 * seconds)
    return scene.test(name)


def _probe(scene: Scene, rate: float, detail: Detail) -> Probe:
    """The result of one test. It is also printed, because a search takes minutes."""
    seconds = max(scene.bench.settings.min_duration_ms / 1000, SERVER_QUERIES / rate)
    found = Probe(rate, seconds, detail.valid, detail.latencies.percentiles["99.00"])
    verdict = "VALID" if found.valid else "INVALID"
    told = f"server: {rate:,.4g} queries/s for {seconds:.3g} s: {verdict}"
    print(f"{told}, 99th percentile {1000 * found.percentile_seconds:.4g} ms", file=sys.stderr, flush=True)
    return found
