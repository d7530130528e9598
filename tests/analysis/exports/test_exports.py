"""Other programs' forms, read by their own parsers or whole, the table of operations, and what is told of
work that was not credited."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics import parser

from aiperf.errors import AiperfError
from aiperf.journal import events
from aiperf.journal.events import Closed, Ended, GroupLost, LegEnded, Origin, Released, Stepped
from aiperf.score.lineage import recount
from aiperf.score.score import score
from aiperf.tasks.images.known_sets import CIFAR_10
from aiperf.wire.trial import State
from analysis.exports.counts import count_json, count_text
from analysis.exports.dawnbench import dawnbench, write_entry
from analysis.exports.mllog import mllog_text
from analysis.exports.openmetrics import live_openmetrics_text, openmetrics_text
from analysis.exports.summary import uncredited_text
from analysis.readings.judgement import Judged, examine
from analysis.readings.live import Follower
from analysis.submissions.system import fields, from_journal
from launch.price import Price
from nas.layers import Conv2d, Dense, GlobalPool
from nas.seeds import residual, resnet50
from nas.text_seeds import gpt2_small_bytes, llama_4x128
from tests.aiperf.rules.forged import each, one, places, said, until
from tests.analysis.packages import described
from tests.journals import Scene, Timed, of_origin, replayed, told, within, write_run
from tests.nas.graphs import chain
from tests.tables import ComesTo


def parsed(text: str, path: Path) -> list[Any]:
    """By the parser of MLPerf's compliance checker."""
    parser = pytest.importorskip("mlperf_logging.compliance_checker.mlp_parser")
    path.write_text(text)
    lines, errors = parser.parse_file(str(path), ruleset="5.0.0")
    assert errors == []
    return list(lines)


def test_every_line_is_of_mlperf_logging(judged: Judged, tmp_path: Path) -> None:
    constants = pytest.importorskip("mlperf_logging.mllog.constants")
    text = mllog_text(judged)
    lines = parsed(text, tmp_path / "log")
    assert len(lines) == text.count("\n")
    known = {value for name, value in vars(constants).items() if name.isupper()}
    assert {line.key for line in lines} <= known
    kinds = {constants.INTERVAL_START, constants.INTERVAL_END, constants.POINT_IN_TIME}
    assert {json.loads(line[len(":::MLLOG ") :])["event_type"] for line in text.splitlines()} <= kinds


def test_lines_are_in_the_order_of_time_and_intervals_close(judged: Judged) -> None:
    records = [json.loads(line[len(":::MLLOG ") :]) for line in mllog_text(judged).splitlines()]
    times = [record["time_ms"] for record in records]
    assert times == sorted(times)
    keys = [record["key"] for record in records]
    edges = [key for key in keys if key.startswith(("init", "run"))]
    assert edges == ["init_start", "init_stop", "run_start", "run_stop"]
    (stop,) = [record for record in records if record["key"] == "run_stop"]
    assert stop["metadata"]["ops_per_second"] == judged.score.ops_per_second
    assert stop["metadata"]["status"] == "success"
    accuracies = [
        r for r in records if r["key"] == "eval_accuracy" and r["metadata"]["images"] == "validation"
    ]
    assert len(accuracies) == sum(len(a.validations) for a in judged.replay.attempts)


@pytest.mark.parametrize("scene", [Scene(killed_at=25.0), Scene(minutes=0.01), Scene(lost=((1, 20.0),))])
def test_so_are_those_of_other_runs(scene: Scene, tmp_path: Path) -> None:
    judged = examine(write_run(tmp_path / "run", told(scene)))
    assert parsed(mllog_text(judged), tmp_path / "log")
    assert families(openmetrics_text(judged))


def families(text: str) -> dict[str, Any]:
    """By Prometheus' own parser."""
    read = parser.text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    return {family.name: family for family in read}


def test_openmetrics_are_read_by_prometheus(judged: Judged) -> None:
    found = families(openmetrics_text(judged))
    (sample,) = found["aiperf_ops_per_second"].samples
    assert sample.value == judged.score.ops_per_second
    assert sample.labels == {"run": "four-groups"}
    follower = Follower(judged.files)
    follower.update()
    live = families(live_openmetrics_text(follower.snapshot()))
    assert live["aiperf_ops_per_second"].samples[0].value == pytest.approx(sample.value)
    trials = {s.labels["state"]: s.value for s in found["aiperf_trials"].samples}
    assert trials == judged.score.trials


def test_the_description_passes_mlperfs_own_check(judged: Judged, tmp_path: Path) -> None:
    module = pytest.importorskip("mlperf_logging.system_desc_checker.system_desc_checker")
    path = tmp_path / "system.json"
    path.write_text(json.dumps(described(judged.files)))
    valid, name, *_ = module.check_system_desc(str(path), "training", "5.0.0")
    assert (valid, name) == (True, "Testbed")


def test_what_the_journal_can_say_is_filled(
    judged: Judged, as_it_was_read: Callable[[str, str], None]
) -> None:
    told_by_journal = from_journal(judged.replay)
    assert told_by_journal.keys() <= fields().keys()
    as_it_was_read(json.dumps(told_by_journal, indent=2) + "\n", "described.json")


HERE = Path(__file__).parent


def test_the_tables_whole(as_it_was_read: Callable[[str, str], None]) -> None:
    for name, graph, size in (("resnet50", resnet50(), 4), ("residual", residual(), 2)):
        as_it_was_read(count_text(graph, size), f"counts_{name}.txt")
    as_it_was_read(count_text(llama_4x128(), 2), "counts_llama.txt")


def test_the_record_whole() -> None:
    graph = chain(Conv2d(2, 1), GlobalPool(), Dense(2, bias=False), input=(1, 2, 2))
    assert count_json(graph, 2) == json.loads((HERE / "counts.json").read_text())


def test_all_pairs_stand_beside_the_triangle() -> None:
    """Attention's 2T/(T + 1) times as many products, and nothing else."""
    record = count_json(gpt2_small_bytes())
    for name, cell in record["total_all_pairs"].items():
        attention = record["rows"]["attention"][name]["tensor_ops"]
        assert (cell["tensor_ops"] - record["total"][name]["tensor_ops"]) * 1025 == attention * 1023
        assert f"{cell['tensor_ops']:,}" in count_text(gpt2_small_bytes()).split()
    assert "total_all_pairs" not in count_json(resnet50())


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    timed = said(events.Tested, top5=1190)(told(Scene()))
    return examine(write_run(tmp_path_factory.mktemp("runs") / "simulated", timed))


def test_the_entry_whole(digits: Judged, tmp_path: Path, as_it_was_read: Callable[[str, str], None]) -> None:
    """The first row at an accuracy is the time to it, as DAWNBench reads it; epochs are of all networks."""
    assert digits.replay.tested is not None
    entry = dawnbench(digits, "Example Site", "you@example.org", Price(2.0, "USD"))
    record, table = write_entry(entry, tmp_path / "new")
    name = f"Example-Site_aiperf-hpc-trial{digits.replay.tested.trial}_2xNVIDIA-H200-on-2-hosts_pytorch"
    assert [record.name, table.name] == [f"{name}.json", f"{name}.tsv"]
    text = record.read_text(encoding="utf-8").replace(digits.replay.last_chain, "the chain of the last line")
    as_it_was_read(json.dumps(json.loads(text), indent=2, ensure_ascii=False) + "\n", "dawnbench.json")
    as_it_was_read(table.read_text(encoding="utf-8"), "dawnbench.tsv")
    assert "costPerHour" not in dawnbench(digits, "a", "b", None).record


def test_a_set_of_dawnbenchs_is_named(digits: Judged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analysis.exports.dawnbench.known_set", lambda manifest: CIFAR_10)
    assert dawnbench(digits, "a", "b", None).record["misc"]["task"] == "CIFAR10"


def test_what_makes_no_entry(digits: Judged, tmp_path: Path) -> None:
    with pytest.raises(AiperfError, match="costPerHour is in USD"):
        dawnbench(digits, "a", "b", Price(2.0))
    for name, timed, why in (
        ("pretended", of_origin(told(Scene()), Origin.PRETENDED), "written as a DAWNBench entry"),
        ("untested", told(Scene())[:-1], "it makes no entry"),
    ):
        run = examine(write_run(tmp_path / name, timed))
        with pytest.raises(AiperfError, match=why):
            dawnbench(run, "a", "b", None)
    recorded = Path(__file__).parents[2] / "recorded" / "language"
    text = examine(replace(digits.files, directory=recorded))
    with pytest.raises(AiperfError, match=r"has no task like language|makes no entry"):
        dawnbench(text, "a", "b", None)


TIMED = told(Scene(minutes=0.15))


def uncredited(timed: list[Timed]) -> list[str]:
    run = replayed(timed)
    return uncredited_text(run, score(run, recount(run).counts))


def late() -> list[Timed]:
    """The last validation of each group ends 2.5 s after the deadline."""
    deadline = one(Released, TIMED).deadline
    last = [TIMED[place][1] for place in places(TIMED, Closed)[-2:]]
    return each(Closed, lambda e: replace(e, end=deadline + 2.5) if e in last else e)(TIMED)


def lost() -> list[Timed]:
    """Both groups in the middle of a segment."""
    begun = TIMED[: places(TIMED, Stepped)[-1] + 1]
    t = begun[-1][0]
    return [*begun, (t, GroupLost(0, "dead")), (t, GroupLost(1, "dead")), (t, LegEnded("error: lost", t))]


def failed() -> list[Timed]:
    begun = TIMED[: places(TIMED, Stepped)[-1] + 1]
    last = begun[-1][1]
    assert isinstance(last, Stepped)
    end = within(one(Ended, TIMED), trial=last.block.trial, state=State.FAILED, kept=None)
    return [*begun, (begun[-1][0], end)]


def test_the_reason_is_told_with_its_share(comes_to_what_was_read: ComesTo) -> None:
    comes_to_what_was_read("uncredited.txt", {**globals(), "each": each, "until": until})
