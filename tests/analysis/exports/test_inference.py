"""What `infer` found: its words, its file, and the report that shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.errors import AiperfError
from aiperf.journal.file import read_journal
from aiperf.journal.replay import Replay, replay
from aiperf.journal.run_files import RunFiles
from aiperf.scenarios.detail_log import read_detail
from aiperf.scenarios.exchange import Accuracy, Measured, Probe
from aiperf.scenarios.latencies import Latencies
from aiperf.tasks.images.tally import Classified
from aiperf.tasks.language.tally import Predicted
from aiperf.tasks.tally import Tally
from analysis.exports.inference import Inference, found, inference_table, inference_text, load_all, save
from analysis.pages.report import report_html
from analysis.readings.judgement import Judged
from analysis.readings.limits import limits_of
from launch.price import Price
from tests.aiperf.scenarios.test_detail_log import LOGS
from tests.journals import Scene, told, write_run

WRONG = Classified(1000, 600)
OWN = Latencies.of(0.001 * number for number in range(1, 101))


def measured(log: str, **changes: object) -> Measured:
    whole = Measured(
        device="AMD EPYC",
        threads=2,
        format="bf16",
        software={},
        tensor_ops=1_000_000,
        test_seconds=3.0,
        latency_seconds=0.4,
        detail=read_detail(LOGS / f"{log}.txt"),
        stopwatch=OWN,
        span=(0.0, 3.0),
        device_id="",
        queries_per_second=None,
        probes=(),
        nothing="",
        accuracy=None,
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


def inference(scenario: str, log: str = "", **changes: object) -> Inference:
    return Inference("a run", "abc", 7, "image", scenario, measured(log or scenario, **changes), None, None)


RIGHT = Accuracy(Classified(1197, 359), Classified(1197, 359), OWN)


def test_what_is_shown_is_as_it_was_read(as_it_was_read: Callable[[str, str], None]) -> None:
    """What is printed of a scenario, of servers, of a price and of an accuracy that agrees with the journal's
    or differs, and rows of the page."""
    single = inference("single-stream", accuracy=RIGHT)
    probes = (Probe(1361.0, 3.0, True, 0.2867),)
    journals = (WRONG, Classified(1000, 602)), (WRONG, Classified(1000, 603))
    tested: list[tuple[Tally, Tally | None]] = [*journals, (Predicted(10, 3 << 20, 1), None)]
    none = inference("server", detail=None, stopwatch=None, nothing="no rate within the bound of 1 ms")
    texts = [
        inference_text(replace(single, ceiling_ops_per_second=190.7e9), Price(36.0, "USD")),
        inference_text(inference("server", "server-late", queries_per_second=61.7)),
        inference_text(inference("server", queries_per_second=1361.0, probes=probes, test_seconds=600.0)),
        inference_text(none),
        *(inference_text(inference("offline", accuracy=Accuracy(*each, OWN))) for each in tested),
        *(" | ".join(row) for row in inference_table([single, none]).rows),
    ]
    as_it_was_read("\n\n".join(texts) + "\n", "inference.txt")


def test_a_price_makes_dawnbenchs_cost() -> None:
    """The mean of all test images, one at a time: 50.5 ms; 10,000 of them are 505 s of a node."""
    single = inference("single-stream", accuracy=RIGHT)
    assert single.dawnbench_cost(Price(36.0)) == pytest.approx(5.05)
    assert "cost   " not in inference_text(single)
    for other in (inference("offline", accuracy=RIGHT), inference("single-stream")):
        assert other.dawnbench_cost(Price(36.0)) is None
        assert inference_text(other, Price(36.0)) == inference_text(other)


def test_energy_and_ceiling_of_a_sample() -> None:
    """464 samples of 8 in a query: 662 queries of 8 samples."""
    stream = replace(inference("multi-stream", device_id="GPU-1"), joules=662 * 8 * 0.5)
    assert "energy                  0.5 J/image; 2.648 kJ, the device only\n" in inference_text(stream)
    one = replace(inference("offline", device_id="GPU-1"), ceiling_ops_per_second=1e9)
    assert one.measured.detail is not None
    assert one.share_of_ceiling == pytest.approx(one.measured.detail.samples_per_second * 1e6 / 1e9)
    assert "unknown (its power is not known over the whole test)" in inference_text(one)


@pytest.fixture
def replayed(copied: RunFiles) -> Replay:
    return replay(read_journal(copied.journal))


def kept(files: RunFiles, run: Replay, scenario: str, trial: int = 2) -> Inference:
    files.inference_directory.mkdir(exist_ok=True)
    one = found(files, run, trial, scenario, measured(scenario))
    save(files, one)
    return one


def test_it_is_kept_beside_the_journal_and_shown_in_the_report(
    copied: RunFiles, judged: Judged, replayed: Replay, undrawn: None
) -> None:
    assert load_all(copied, replayed) == []
    page = replace(judged, files=copied)
    assert 'id="inference"' not in report_html(page)
    wanted = [
        kept(copied, replayed, *of) for of in (("offline", 2), ("single-stream", 10), ("multi-stream", 2))
    ]
    assert load_all(copied, replayed) == [wanted[2], wanted[0], wanted[1]]
    section = report_html(page).partition('<section id="inference"')[2].partition("</section>")[0]
    assert "VALID, short (3 s)" in section.replace("\u00a0", " ")
    path = copied.inference(2, "offline")
    save(copied, replace(wanted[0], begin_chain="another"))
    with pytest.raises(AiperfError, match=r"2-offline\.json is of another run; remove it"):
        load_all(copied, replayed)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(AiperfError, match=r"2-offline\.json is not an output of `infer`"):
        load_all(copied, replayed)


def test_joules_are_those_of_the_test_alone(copied: RunFiles, replayed: Replay) -> None:
    """A device of 100 W, read once a second from two seconds before the test to two after it."""
    logs = copied.inference_logs(2, "offline")
    logs.mkdir(parents=True)
    devices = '"devices":[{"id":"GPU-1","power_watts":100.0}]'
    lines = [f'{{"wall_seconds":{second},{devices}}}\n' for second in range(998, 1006)]
    (logs / "telemetry.jsonl").write_text("".join(lines), encoding="utf-8")
    one = measured("offline", device_id="GPU-1", span=(1000.5, 1003.5))
    assert found(copied, replayed, 2, "offline", one).joules == pytest.approx(300.0)
    unread = replace(one, device_id="GPU-2")
    assert found(copied, replayed, 2, "offline", unread).joules is None


def test_a_ceiling_is_of_the_same_device_in_the_same_format(tmp_path: Path) -> None:
    files = write_run(tmp_path / "run", told(Scene()))
    run = replay(read_journal(files.journal))
    limits = limits_of(run)
    assert limits is not None
    here = measured("offline", device=limits.device, format=limits.format)
    for one, ceiling in (
        (here, limits.ops_per_second),
        (replace(here, device="another"), None),
        (replace(here, format="tf32"), None),
    ):
        assert found(files, run, 2, "offline", one).ceiling_ops_per_second == ceiling
