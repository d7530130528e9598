"""`infer`, by the real LoadGen, on a network that a run kept; and what it refuses."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.errors import AiperfError
from aiperf.host.child_process import Child, NoReply
from aiperf.journal.events import Origin
from aiperf.journal.file import read_journal
from aiperf.journal.replay import replay
from aiperf.journal.run_files import RunFiles
from aiperf.scenarios.detail_log import read_detail
from aiperf.scenarios.exchange import Request
from aiperf.scenarios.scenario import SCENARIOS
from analysis.exports.inference import Inference, load_all
from tests.aiperf.commands.typed import Typed
from tests.aiperf.inference.kept_run import kept_run
from tests.journals import Scene, of_origin, told, write_run

pytest.importorskip("mlperf_loadgen", reason="LoadGen has no wheel for this Python or processor")

from aiperf.inference.measuring import WarmSpeed, measure, warm_up
from aiperf.inference.systems import System

SECONDS = 1.0
SERVER = ("--scenario", "server", "--seconds", SECONDS, "--device", "cpu")
RATE = 300.0


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFiles, int]:
    """In fp32, which every processor has; some only emulate bf16, a hundred times slower."""
    scene = Scene(groups=1, minutes=0.1, changes=(("training.format", "fp32"),))
    return kept_run(tmp_path_factory.mktemp("runs") / "kept", scene)


def results(files: RunFiles) -> dict[str, Inference]:
    run = replay(read_journal(files.journal))
    return {found.scenario: found for found in load_all(files, run)}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_loadgen_and_our_own_stopwatch_see_the_same_in_every_scenario(
    run: tuple[RunFiles, int], typed: Typed
) -> None:
    files, number = run
    words = ("--seconds", SECONDS, "--latency-ms", 60_000, "--qps", RATE, "--accuracy", "--device", "cpu")
    assert typed("infer", files.directory, *words) == 0, typed.out
    found = results(files)
    assert list(found) == list(SCENARIOS)
    for name, inference in found.items():
        measured, detail, own = inference.measured, inference.measured.detail, inference.measured.stopwatch
        assert (inference.trial, inference.is_short) == (number, True)
        assert f"{name:<24}VALID by LoadGen 6" in typed.out
        assert detail is not None
        assert own is not None
        assert own.number == detail.latencies.number
        # Our interval lies inside LoadGen's, which begins before the call and ends in it.
        assert 0.5 * detail.latencies.mean < own.mean <= detail.latencies.mean
        assert measured.accuracy is not None
        assert measured.accuracy.recorded is not None
        assert measured.accuracy.found.agrees(measured.accuracy.recorded)
        log = files.inference_logs(number, name) / "performance" / "mlperf_log_detail.txt"
        # Each scenario had a process of its own: the seeds of mlperf.conf, and the length that was asked for.
        assert '"effective_qsl_rng_seed", "value": 2085463073848966840,' in log.read_text()
        assert '"effective_min_duration_ms", "value": 1000,' in log.read_text()
    server = found["server"].measured
    assert (server.queries_per_second, server.probes) == (RATE, ())


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_host_that_becomes_faster_after_the_warm_up_has_a_valid_test(
    run: tuple[RunFiles, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one scenario, because LoadGen takes one per process. It issues at least all test images, for which a
    slow processor takes more than a second."""

    def slow(system: System, samples_per_query: int) -> WarmSpeed:
        found = warm_up(system, samples_per_query)
        # So little that the images alone decide: a busy machine may be much slower in the test than now.
        return replace(found, samples_per_second=found.samples_per_second / 64)

    files, number = RunFiles(tmp_path / "run"), run[1]
    shutil.copytree(run[0].directory, files.directory)
    shutil.rmtree(files.inference_directory, ignore_errors=True)
    logs = files.inference_logs(number, "offline")
    logs.mkdir(parents=True)
    monkeypatch.setattr("aiperf.inference.measuring.warm_up", slow)
    request = Request(str(files.directory), number, "offline", 5 * SECONDS, 60.0, None, False, "cpu", "")
    detail = measure(request).detail
    assert detail is not None
    assert detail.valid, detail.reason
    assert read_detail(logs / "too-soon-1" / "mlperf_log_detail.txt").too_soon


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_bound_that_nothing_meets_ends_the_search(run: tuple[RunFiles, int], typed: Typed) -> None:
    files, _ = run
    assert typed("infer", files.directory, *SERVER, "--latency-ms", 0.001) == 1
    assert "no rate within the bound of 0.001 ms: one sample alone takes" in typed.out
    assert results(files)["server"].measured.detail is None


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_highest_rate_passed_in_full_length(run: tuple[RunFiles, int], typed: Typed) -> None:
    files, number = run
    typed("infer", files.directory, *SERVER, "--latency-ms", 400)
    found = results(files)["server"].measured
    if found.detail is None:  # beside programs that keep the processor busy
        assert found.nothing.startswith("no rate within the bound of 400 ms")
        return
    assert found.detail.valid
    assert found.detail.latencies.percentiles["99.00"] <= 0.4
    assert found.probes[-1].queries_per_second == found.queries_per_second
    assert found.probes[-1].valid
    logs = files.inference_logs(number, "server")
    assert len(list(logs.glob("*/mlperf_log_detail.txt"))) == len(found.probes)


def test_what_was_not_kept_has_no_network(run: tuple[RunFiles, int], typed: Typed, tmp_path: Path) -> None:
    """No such trial, one without weights, a run without any, and one that was pretended."""
    files, number = run
    assert typed("infer", files.directory, 9999) == 1
    assert "9999" in typed.err
    assert typed.err.count("\n") == 1
    other = 0 if number else 1
    assert typed("infer", files.directory, other) == 1
    assert f"the weights of trial {other} were not kept" in typed.err
    assert typed.err.endswith(f"trials with weights: {number}\n")
    bare = RunFiles(tmp_path)
    shutil.copy(files.journal, bare.journal)
    assert typed("infer", bare.directory) == 1
    assert typed.err.endswith("trials with weights: none\n")
    files = write_run(tmp_path / "pretended", of_origin(told(Scene()), Origin.PRETENDED))
    assert typed("infer", files.directory) == 1
    assert "cannot be measured at inference: the run is pretended: no network was trained" in typed.err


@pytest.mark.parametrize("error", [AiperfError("no such data"), NoReply("its process failed: KeyError")])
def test_an_earlier_result_stays_where_there_is_no_new_one(
    error: Exception, run: tuple[RunFiles, int], typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused, or killed while it wrote its logs; and again after this program was killed itself."""
    files, number = RunFiles(tmp_path / "run"), run[1]
    shutil.copytree(run[0].directory, files.directory)
    result, logs = files.inference(number, "multi-stream"), files.inference_logs(number, "multi-stream")
    shutil.rmtree(files.inference_directory, ignore_errors=True)
    (logs / "performance").mkdir(parents=True)
    earlier = {result: "result", logs / "user.conf": "settings", logs / "performance" / "log.txt": "log"}
    for path, text in earlier.items():
        path.write_text(text)

    def measured(child: Child) -> object:
        child.kill()
        assert list(logs.iterdir()) == []
        (logs / "user.conf").write_text("new")
        raise error

    monkeypatch.setattr(Child, "answer", measured)
    words = ("infer", files.directory, "--scenario", "multi-stream")
    assert typed(*words) == 1
    assert str(error) in typed.err
    assert {path: path.read_text() for path in earlier} == earlier
    logs.rename(logs.with_name(f"{logs.name}.earlier"))
    logs.mkdir()
    (logs / "user.conf").write_text("torn")
    assert typed(*words) == 1
    assert {path: path.read_text() for path in earlier} == earlier
    assert len(list(files.inference_directory.iterdir())) == 2
