"""A log of MLPerf Training: accepted by the checker of mlperf-logging, and by it alone it is judged here."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aiperf.errors import AiperfError, ConfigError
from aiperf.journal.events import Dispatched, Origin
from aiperf.journal.file import read_journal
from aiperf.tasks.images.known_sets import IMAGENET_1K
from analysis.exports.mllog import DIVISIONS, STATUSES, MlperfEntry, mlperf_text
from analysis.readings import validation
from analysis.readings.judgement import Judged, examine, glance, read_run
from tests.aiperf.commands.typed import Typed
from tests.aiperf.rules.forged import each
from tests.journals import IMAGENET, Machine, Scene, of_origin, resized, told, write_run

TRAINING = 1_231_167
ENTRY = MlperfEntry("resnet", "open", "Example University", "Testbed", "onprem")
RULES = "4.0.0"
"""The last rule set with `resnet`."""


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """An hour on two groups of eight devices, one of which dies, with trials that fail and are stopped."""
    machine = Machine(2, 8, device_ops_per_second=2e12, failing=0.2, random_seed=3, lost_groups=(1,))
    return examine(write_run(tmp_path_factory.mktemp("runs") / "imagenet", IMAGENET, machine))


@pytest.fixture(scope="module")
def records(imagenet: Judged) -> list[dict[str, Any]]:
    return [json.loads(line[len(":::MLLOG ") :]) for line in mlperf_text(imagenet, ENTRY).splitlines()]


def accepts(records: list[dict[str, Any]], path: Path) -> bool:
    """What MLPerf's checker says, warnings taken for errors."""
    compliance = pytest.importorskip("mlperf_logging.compliance_checker.mlp_compliance")
    path.write_text("".join(f":::MLLOG {json.dumps(record)}\n" for record in records))
    compliance.enqueued_configs.clear()
    checker = compliance.make_checker("training", RULES, quiet=False, werror=True)
    return bool(checker.check_file(str(path), f"training_{RULES}/common.yaml"))


def test_mlperfs_checker_accepts_it(records: list[dict[str, Any]], tmp_path: Path) -> None:
    """And would not, had a line lacked its metadata or the log a key."""
    assert accepts(records, tmp_path / "log")
    assert {r["metadata"].get("state") for r in records} >= {None, "FAILED", "STOPPED"}
    assert not accepts([r for r in records if r["key"] != "train_samples"], tmp_path / "log")
    bare = [{**r, "metadata": {}} if r["key"] == "eval_stop" else r for r in records]
    assert not accepts(bare, tmp_path / "log")


def test_its_epochs_are_passes_over_the_training_images(
    imagenet: Judged, records: list[dict[str, Any]]
) -> None:
    """The blocks of one trial: each ends where its evaluation begins, and begins where the last one ended."""
    attempt = next(a for a in imagenet.replay.attempts if len(a.validations) > 3)
    place = attempt.trial.number, attempt.number
    own = [r for r in records if (r["metadata"].get("trial"), r["metadata"].get("attempt")) == place]
    done = 0
    for index, closed in enumerate(attempt.validations):
        segment, part = closed.segment, own[5 * index : 5 * index + 5]
        keys = ["block_start", "block_stop", "eval_start", "eval_accuracy", "eval_stop"]
        assert [r["key"] for r in part] == keys
        block, evaluated = part[0]["metadata"], part[2]["metadata"]
        assert [r["metadata"] for r in part] == [block] * 2 + [evaluated] * 3
        assert block["first_epoch_num"] == 1 + done / TRAINING
        assert block["epoch_count"] == segment.train_examples / TRAINING
        done += segment.train_examples
        assert evaluated["epoch_num"] == done / TRAINING
        assert part[3]["value"] == pytest.approx(1 - segment.error)
        seconds = [r["time_ms"] / 1000 for r in part]
        assert seconds[4] - seconds[2] == pytest.approx(segment.validate_seconds, abs=0.002)
        assert seconds[1] == seconds[2]
        assert seconds == sorted(seconds)


def refusal(run: Judged) -> str:
    with pytest.raises(AiperfError) as raised:
        mlperf_text(run, ENTRY)
    assert "\n" not in str(raised.value)
    return str(raised.value).replace(f"{run.files.directory.parent}/", "")


def test_other_data_is_refused(judged: Judged, tmp_path: Path) -> None:
    assert refusal(judged) == (
        "four-groups: MLPerf's resnet is of ImageNet-1k, and classes is 10, but ImageNet-1k has 1000"
    )
    data = replace(IMAGENET.data, name="synthetic", training_examples=TRAINING)
    generated = replace(resized(IMAGENET, 5.0), data=data)
    run = examine(write_run(tmp_path / "generated", generated, Machine(1, 8, device_ops_per_second=2e12)))
    assert refusal(run).startswith("generated: MLPerf's resnet is of ImageNet-1k, and ")
    recorded = Path(__file__).parents[2] / "recorded" / "language"
    text = examine(replace(judged.files, directory=recorded))
    assert refusal(text) == "language is a run of language; MLPerf's resnet is of ImageNet-1k"


@pytest.mark.parametrize(
    ("name", "timed", "why"),
    [
        ("resumed", lambda: told(Scene(killed_at=25.0)), "has one run_start"),
        ("untested", lambda: told(Scene())[:-1], "it makes no MLPerf entry"),
        ("pretended", lambda: of_origin(told(Scene()), Origin.PRETENDED), "as an MLPerf log"),
    ],
)
def test_other_runs_are_refused(
    name: str, timed: Callable[[], Any], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if their images were ImageNet's, so that this is not the reason."""
    run = examine(write_run(tmp_path / name, timed()))
    monkeypatch.setattr("analysis.exports.mllog.known_set", lambda manifest: IMAGENET_1K)
    assert why in refusal(run)


def test_an_entry_says_who_and_what() -> None:
    with pytest.raises(ConfigError, match="closed division fixes the network"):
        replace(ENTRY, division="closed")
    with pytest.raises(ConfigError, match=r"give --organization, --status$"):
        replace(ENTRY, organization=" ", status="")


def test_the_words_are_those_of_the_rules() -> None:
    """In the checker's own rules, which it evaluates."""
    compliance = pytest.importorskip("mlperf_logging.compliance_checker.mlp_compliance")
    rules = (Path(compliance.__file__).parent / f"training_{RULES}" / "common.yaml").read_text()
    assert str(list(STATUSES)) in rules
    assert str(sorted(DIVISIONS)) in rules


def test_a_validation_that_was_kept_is_not_believed(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is too long for a glance, with more operations and the findings of an honest one."""
    machine = Machine(1, 8, device_ops_per_second=2e12)
    honest = examine(write_run(tmp_path / "honest", resized(IMAGENET, 5.0), machine))
    lines = [(line.t, line.event) for line in read_journal(honest.files.journal)]
    enlarged = each(Dispatched, lambda e: replace(e, forward=tuple(4 * number for number in e.forward)))
    forged = write_run(tmp_path / "forged", enlarged(lines))
    monkeypatch.setattr("analysis.readings.judgement.COUNTED_AGAIN", 1)
    assert honest.layers is not None
    validation.save(forged, read_run(forged), honest.verdict.findings, honest.layers)
    assert glance(forged).verdict.valid
    words = ["export", "--mllog", "--mlperf", "resnet", "--organization", "E", "--platform", "T", "--status"]
    assert typed(*words, "onprem", forged.directory) == 1
    assert "forged is INVALID" in typed.err


def test_the_command_writes_it(imagenet: Judged, judged: Judged, typed: Typed, tmp_path: Path) -> None:
    words = [*["export", "--mllog", "--mlperf", "resnet", "--organization"], "Example University"]
    words += ["--platform", "Testbed", "--status", "onprem"]
    assert typed(*words, imagenet.files.directory, "-o", tmp_path / "log") == 0
    assert (tmp_path / "log").read_text() == mlperf_text(imagenet, ENTRY)
    assert typed(*words, judged.files.directory) == 1
    assert typed.err.startswith("aiperf-hpc: ")
    assert typed.err.count("\n") == 1
