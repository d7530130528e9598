"""DAWNBench's JSON and TSV, whole, and what makes none."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.errors import AiperfError
from aiperf.journal import events
from aiperf.journal.events import Origin
from aiperf.tasks.images.known_sets import CIFAR_10
from analysis.exports.dawnbench import dawnbench, write_entry
from analysis.readings.judgement import Judged, examine
from launch.price import Price
from tests.journals import Scene, of_origin, told, within, write_run


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    timed = [(t, within(e, top5=1190) if isinstance(e, events.Tested) else e) for t, e in told(Scene())]
    return examine(write_run(tmp_path_factory.mktemp("runs") / "simulated", timed))


def test_the_entry_whole(digits: Judged, tmp_path: Path, as_it_was_read: Callable[[str, str], None]) -> None:
    assert digits.replay.tested is not None
    entry = dawnbench(digits, "Example Site", "you@example.org", Price(2.0, "USD"))
    record, table = write_entry(entry, tmp_path / "new")
    name = f"Example-Site_aiperf-hpc-trial{digits.replay.tested.trial}_2xNVIDIA-H200-on-2-hosts_pytorch"
    assert [record.name, table.name] == [f"{name}.json", f"{name}.tsv"]
    text = record.read_text(encoding="utf-8").replace(digits.replay.last_chain, "the chain of the last line")
    as_it_was_read(json.dumps(json.loads(text), indent=2, ensure_ascii=False) + "\n", "dawnbench.json")


def test_the_first_row_at_an_accuracy_is_the_time_to_it(digits: Judged) -> None:
    """As DAWNBench reads it."""
    entry = dawnbench(digits, "a", "b", None)
    assert "costPerHour" not in entry.record
    rows = list(csv.DictReader(io.StringIO(entry.tsv), delimiter="\t"))
    closed = [
        (v.end - 12.0, v.segment) for a in digits.replay.attempts if a.chosen_from for v in a.validations
    ]
    for wanted in (40.0, 60.0, 75.0):
        first = min(end for end, segment in closed if 100 * (1 - segment.error) >= wanted)
        row = next(row for row in rows if float(row["top1Accuracy"]) >= wanted)
        assert float(row["hours"]) * 3600 == pytest.approx(first)
        every = [v for a in digits.replay.attempts for v in a.validations if v.end - 12.0 <= first]
        trained = sum(v.segment.train_examples for v in every)
        assert float(row["epoch"]) == pytest.approx(trained / 200)


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
