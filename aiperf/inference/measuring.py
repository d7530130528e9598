"""Measuring one scenario, in a process of its own.

It warms up and runs LoadGen's tests; in the Server scenario it searches for the highest query rate whose
latencies stay within the bound; on request it measures the accuracy on the whole test part. The progress of a
search is printed on standard error.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter

from aiperf.errors import AiperfError
from aiperf.inference.loadgen import Bench, detail_log, load_loadgen, logged_answers
from aiperf.inference.systems import AnsweringNetwork, QueuedSystem, SampleLibrary, System
from aiperf.journal.file import read_journal
from aiperf.journal.replay import Replay, replay
from aiperf.journal.run_files import RunFiles
from aiperf.proposing.plan import validated_at_once
from aiperf.scenarios.detail_log import Detail, read_detail
from aiperf.scenarios.exchange import ACCURACY, PERFORMANCE, TELEMETRY, Accuracy, Measured, Probe, Request
from aiperf.scenarios.latencies import Latencies
from aiperf.scenarios.rate_search import highest_rate
from aiperf.scenarios.scenario import SCENARIOS, SERVER_QUERIES
from aiperf.telemetry.recorder import Recorder
from aiperf.training.found_network import FoundNetwork, find_network
from nas.frozen import frozen
from nas.ops import TENSOR_OPS
from nas.record import decode, encode

MORE_QUERIES = 2.0
"""Factor on the expected rate of queries. LoadGen generates its queries in advance, by the rate given to it;
with too few queries a test would end too soon."""
MORE_SAMPLES = 1.3
"""The same factor for the one query of Offline, which LoadGen itself makes a tenth larger."""
MOST_REPEATED = 3
"""Most repetitions of a test that ended too soon, each with the speed that the one before it showed."""
SWITCH_SECONDS = 1e-4
"""Interval in seconds after which a Python thread lets others run. The default of 5 ms would be visible in
the latencies."""
NANO = 1e9
"""Nanoseconds per second: LoadGen's settings are in nanoseconds."""


def answered(request: str) -> object:
    """The record of what is measured for a Request (JSON). It is called in a process of its own."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # KeyboardInterrupt must not pass through LoadGen's frames
    return encode(measure(decode(Request, json.loads(request))))


def measure(request: Request) -> Measured:
    """Measures a scenario as requested. Raises AiperfError for errors that the user can fix."""
    loadgen = load_loadgen()
    sys.setswitchinterval(SWITCH_SECONDS)
    files = RunFiles(Path(request.directory))
    run = replay(read_journal(files.journal))
    found = find_network(run, files, request.trial, request.device, request.data, on_host=True)
    if found.device.note:
        print(f"aiperf-hpc: {found.device.note}", file=sys.stderr, flush=True)
    scenario, library = SCENARIOS[request.scenario], SampleLibrary(found.data.test)
    make = QueuedSystem if scenario.name == "server" else System
    system = make(
        loadgen,
        AnsweringNetwork(found.network, found.device.torch),
        library,
        found.device,
        found.training.format,
        min(validated_at_once(found.network.graph, 1), library.loadable),
        per_sample=scenario.name != "multi-stream",
    )
    try:
        folder = files.inference_logs(request.trial, request.scenario)
        bench = Bench(loadgen, scenario, folder, library, request.seconds)
        speed = warm_up(system, scenario.samples_per_query or system.most)
        return _measured(Scene(request, folder, found, library, system, bench, speed), run)
    finally:
        system.close()


def _measured(scene: Scene, run: Replay) -> Measured:
    """Runs the tests of a scenario, with the expected speeds as LoadGen's settings."""
    request, device, settings = scene.request, scene.found.device, scene.bench.settings
    scene.expect(scene.speed.query_seconds, scene.speed.samples_per_second)
    settings.server_target_latency_ns = round(NANO * request.latency_seconds)
    with scene.recorded():
        if request.scenario == "server" and request.queries_per_second is None:
            found = search(scene)
        else:
            settings.server_target_qps = request.queries_per_second or 1.0
            found = FoundRate(request.queries_per_second, *_long_enough(scene), ())
    tested = found.detail is not None
    return Measured(
        device=device.name,
        threads=device.threads,
        format=scene.found.training.format,
        software=device.software(),
        tensor_ops=scene.found.network.graph.cost.evaluate.price(TENSOR_OPS),
        test_seconds=request.seconds,
        latency_seconds=request.latency_seconds,
        detail=found.detail,
        stopwatch=Latencies.of(scene.system.seconds) if tested else None,
        span=found.span,
        device_id=device.identity if device.sensors else "",
        queries_per_second=found.rate,
        probes=found.probes,
        nothing=found.nothing,
        accuracy=_accuracy(scene, run) if request.accuracy and tested else None,
        processor=device.processor,
    )


def _long_enough(scene: Scene) -> tuple[Detail, tuple[float, float]]:
    """The test of full length. On a host that became faster after the warm-up its queries are used up too
    soon, and it is not valid: it is repeated with the speed that it showed."""
    detail, span = scene.test(PERFORMANCE)
    for number in range(1, MOST_REPEATED + 1):
        if not detail.too_soon:
            break
        lasted, name = span[1] - span[0], scene.request.scenario
        print(f"{name}: repeated, because its queries lasted for {lasted:.3g} s", file=sys.stderr, flush=True)
        (scene.folder / PERFORMANCE).rename(scene.folder / f"too-soon-{number}")
        scene.expect(detail.latencies.mean, detail.samples_per_second)
        detail, span = scene.test(PERFORMANCE)
    return detail, span


def _accuracy(scene: Scene, run: Replay) -> Accuracy:
    """Runs LoadGen's accuracy test. Raises AiperfError if a sample is missing in its log."""
    logs = scene.bench.test(scene.system, ACCURACY, accuracy=True)
    answers, library = logged_answers(logs), scene.library
    if sorted(answers) != list(range(library.total)):
        raise AiperfError(f"{logs}: LoadGen logged {len(answers):,} of {library.total:,} answers")
    tally = scene.system.answering.tally(answers, library.targets())
    tested = run.tested
    recorded = tested.tally if tested is not None and tested.trial == scene.request.trial else None
    return Accuracy(tally, recorded, Latencies.of(scene.system.seconds))


WARM_UP_SECONDS, WARM_UP_TIMES = 1.0, 3
"""Minimum time in seconds and number of repetitions of the warm-up, for each number of samples at once."""
TELEMETRY_SECONDS = 2.5
"""Time in seconds for which sensors are read before and after a test. They are read once per second, and the
energy of a test needs a reading on both sides of its ends."""


@frozen
class WarmSpeed:
    """Speed of the network after the warm-up, before any test."""

    one_seconds: float
    """Median time for one sample in seconds."""
    query_seconds: float
    """Shortest time for a query of the scenario in seconds."""
    samples_per_second: float
    """Highest rate with as many samples at once as the network can take."""


@frozen
class Scene:
    """One network in one scenario."""

    request: Request
    folder: Path
    found: FoundNetwork
    library: SampleLibrary
    system: System
    bench: Bench
    speed: WarmSpeed

    def expect(self, query_seconds: float, samples_per_second: float) -> None:
        """Has LoadGen, which makes its queries before a test, make as many as these speeds need."""
        settings = self.bench.settings
        settings.single_stream_expected_latency_ns = NANO * query_seconds / MORE_QUERIES
        settings.multi_stream_expected_latency_ns = NANO * query_seconds / MORE_QUERIES
        settings.offline_expected_qps = MORE_SAMPLES * samples_per_second

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
        recorder = Recorder(self.folder / TELEMETRY, device.sensors, {device.identity: device.identity})
        try:
            time.sleep(TELEMETRY_SECONDS)
            yield
            time.sleep(TELEMETRY_SECONDS)
        finally:
            recorder.close()


def warm_up(system: System, samples_per_query: int) -> WarmSpeed:
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
    """Times in seconds of batches of this size; only those of the second half, after caches and buffers are
    filled."""
    number, found = min(number, system.most), list[float]()
    batch = system.library.samples(range(number))
    with system.computing():
        while len(found) < WARM_UP_TIMES or sum(found) < WARM_UP_SECONDS:
            began = perf_counter()
            system.answering(batch)
            found.append(perf_counter() - began)
    return found[len(found) // 2 :]


SHORT_TEST = 1 / 20
"""Length of a short test in a search, as a fraction of the full length; it is at least `LEAST_SECONDS`."""
LEAST_SECONDS = 2.0
"""Least length of a short test in seconds, however short a full one is."""
FIRST_LOAD, LEAST_LOAD = 0.5, 0.05
"""First rate of a search, as a fraction of the rate in large batches; and lowest rate, as a fraction of the
rate at which single samples follow each other without a pause: below it, hardly any sample waits for
another."""


@frozen
class FoundRate:
    """Result of a search."""

    rate: float | None
    """Highest rate that passed, in queries per second; None if none did, for the reason in `nothing`."""
    detail: Detail | None
    """LoadGen's verdict on the test of full length at that rate."""
    span: tuple[float, float]
    """Times of day in seconds at the beginning and the end of that test."""
    probes: tuple[Probe, ...]
    nothing: str = ""
    """Reason why no rate passed; empty if one did."""


def search(scene: Scene) -> FoundRate:
    """Tests rates until one passes a test of full length, or none is left."""
    one, bound = scene.speed.one_seconds, scene.request.latency_seconds
    none = f"no rate within the bound of {1000 * bound:.4g} ms"
    if one > bound:  # half of all queries would be late even if none waited
        return FoundRate(None, None, (0.0, 0.0), (), f"{none}: one sample alone takes {1000 * one:.4g} ms")
    probes, last = list[Probe](), list[tuple[Detail, tuple[float, float]]]()

    def passes(rate: float, full: bool) -> bool:
        last.append(_tested(scene, f"rate-{len(probes)}", rate, full))
        probes.append(_probe(scene, rate, last[-1][0]))
        return probes[-1].valid

    first = FIRST_LOAD * scene.speed.samples_per_second
    rate = highest_rate(passes, first, min(first, LEAST_LOAD / one))
    if rate is None:
        lowest = min(probe.queries_per_second for probe in probes)
        return FoundRate(None, None, (0.0, 0.0), tuple(probes), f"{none}, down to {lowest:.4g} queries/s")
    (scene.folder / f"rate-{len(probes) - 1}").rename(scene.folder / PERFORMANCE)
    return FoundRate(rate, *last[-1], tuple(probes))


def _tested(scene: Scene, name: str, rate: float, full: bool) -> tuple[Detail, tuple[float, float]]:
    """Runs a test of one rate, short or of full length."""
    settings, whole = scene.bench.settings, scene.request.seconds
    seconds = whole if full else min(whole, max(LEAST_SECONDS, SHORT_TEST * whole))
    settings.server_target_qps, settings.min_duration_ms = rate, round(1000 * seconds)
    return scene.test(name)


def _probe(scene: Scene, rate: float, detail: Detail) -> Probe:
    """The result of one test. It is also printed, because a search takes minutes."""
    seconds = max(scene.bench.settings.min_duration_ms / 1000, SERVER_QUERIES / rate)
    found = Probe(rate, seconds, detail.valid, detail.latencies.percentiles["99.00"])
    verdict = "VALID" if found.valid else "INVALID"
    line = f"server: {rate:,.4g} queries/s for {seconds:.3g} s: {verdict}"
    print(f"{line}, 99th percentile {1000 * found.percentile_seconds:.4g} ms", file=sys.stderr, flush=True)
    return found
