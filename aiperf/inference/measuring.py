"""Measurement of one scenario: warm-up, LoadGen's tests, and on request the accuracy on the whole test
part."""

from __future__ import annotations

import sys
from pathlib import Path

from aiperf.errors import AiperfError
from aiperf.files import RunFiles
from aiperf.inference.answers import Answering
from aiperf.inference.bench import Bench, load_loadgen, logged_answers
from aiperf.inference.library import Library
from aiperf.inference.rates import RateFound, search
from aiperf.inference.scene import Scene, warmed_up
from aiperf.inference.systems import QueuedSystem, System
from aiperf.journal.file import read_journal
from aiperf.journal.replay import Replay, replay
from aiperf.proposing.plan import validated_at_once
from aiperf.scenarios.latencies import Latencies
from aiperf.scenarios.measured import ACCURACY, PERFORMANCE, Accuracy, Measured, Request
from aiperf.scenarios.scenario import SCENARIOS
from aiperf.training.found_network import find_network
from nas.ops import TENSOR_OPS

MORE_QUERIES = 2.0
"""Factor on the expected rate of queries. LoadGen generates its queries in advance, by the rate given to it;
with too few queries a test would end too soon."""
MORE_SAMPLES = 1.3
"""The same factor for the one query of Offline, which LoadGen itself makes a tenth larger."""
SWITCH_SECONDS = 1e-4
"""Interval in seconds after which a Python thread lets others run. The default of 5 ms would be visible in
the latencies."""
NANO = 1e9


def measure(request: Request) -> Measured:
    """Measures a scenario as requested. Raises AiperfError for errors that the user can fix."""
    loadgen = load_loadgen()
    sys.setswitchinterval(SWITCH_SECONDS)
    files = RunFiles(Path(request.directory))
    run = replay(read_journal(files.journal))
    found = find_network(run, files, request.trial, request.device, request.data, on_host=True)
    scenario, library = SCENARIOS[request.scenario], Library(found.data.test)
    make = QueuedSystem if scenario.name == "server" else System
    system = make(
        loadgen,
        Answering(found.network, found.device.torch),
        library,
        found.device,
        found.training.format,
        min(validated_at_once(found.network.graph, 1), library.loadable),
        per_sample=scenario.name != "multi-stream",
    )
    try:
        folder = files.inference_logs(request.trial, request.scenario)
        bench = Bench(loadgen, scenario, folder, library, request.seconds)
        speed = warmed_up(system, scenario.samples_per_query or system.most)
        return _measured(Scene(request, folder, found, library, system, bench, speed), run)
    finally:
        system.close()


def _measured(scene: Scene, run: Replay) -> Measured:
    request, device, settings = scene.request, scene.found.device, scene.bench.settings
    settings.single_stream_expected_latency_ns = NANO * scene.speed.query_seconds / MORE_QUERIES
    settings.multi_stream_expected_latency_ns = NANO * scene.speed.query_seconds / MORE_QUERIES
    settings.offline_expected_qps = MORE_SAMPLES * scene.speed.samples_per_second
    settings.server_target_latency_ns = round(NANO * request.latency_seconds)
    with scene.recorded():
        if request.scenario == "server" and request.queries_per_second is None:
            found = search(scene)
        else:
            settings.server_target_qps = request.queries_per_second or 1.0
            found = RateFound(request.queries_per_second, *scene.test(PERFORMANCE), ())
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
    )


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
