"""A run as reports see it: counted again where that is quick, else as recorded, and said so."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from aiperf.files import RunFiles
from aiperf.rules.rule import Outcome
from aiperf.rules.verdict import Verdict
from aiperf.score.credit import work
from analysis.readings import judged as module
from analysis.readings import validation
from analysis.readings.facts import verdict_word
from analysis.readings.judged import Judged, examine, glance
from nas.ops import OPS


def test_the_synthetic_run_is_true(judged: Judged) -> None:
    """All that follows is tried on a journal in which no rule finds a contradiction."""
    assert judged.verdict.valid
    assert judged.validated
    assert judged.score.trials["FAILED"] > 0
    assert judged.replay.leg.losses


def test_layers_add_up_to_the_credited_operations(judged: Judged) -> None:
    assert judged.layers is not None
    credited = work(judged.replay, judged.recount.counts, judged.credit)
    assert sum(judged.layers.values()) == credited.kinds.price(OPS) == judged.score.goodput.operations


def test_a_short_run_is_counted_again(run: RunFiles, judged: Judged) -> None:
    found = glance(run)
    assert found.validated
    assert found.verdict == judged.verdict


def test_a_long_run_is_taken_as_recorded_and_said_so(
    run: RunFiles, judged: Judged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COUNTED_AGAIN", 10)
    found = glance(run)
    assert not found.validated
    assert verdict_word(found.verdict, found.validated) == "NOT VALIDATED"
    unknown = {f.rule for f in found.verdict.findings if f.outcome is Outcome.UNKNOWN}
    assert unknown >= {"operations", "bounds", "search"}
    assert found.score.goodput == judged.score.goodput
    assert found.layers is None


def test_a_validation_is_remembered(
    copied: RunFiles, judged: Judged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COUNTED_AGAIN", 10)
    assert judged.layers is not None
    validation.save(copied, judged.replay, judged.verdict, judged.layers)
    found = glance(copied)
    assert found.validated
    assert found.verdict == judged.verdict
    assert found.layers == judged.layers


def test_of_a_short_run_no_earlier_validation_is_believed(copied: RunFiles, judged: Judged) -> None:
    """Whoever has the directory may have written it."""
    validation.save(copied, judged.replay, Verdict(()), {})
    assert glance(copied).verdict == judged.verdict


@pytest.mark.parametrize("field", ["chain", "lines", "code_hash", "findings"])
def test_a_validation_of_anything_else_is_not_taken(copied: RunFiles, judged: Judged, field: str) -> None:
    validation.save(copied, judged.replay, judged.verdict, judged.layers or {})
    assert validation.load(copied, judged.replay) is not None
    record = json.loads(copied.validation.read_text())
    record[field] = 1 if isinstance(record[field], int) else "0" * 64
    copied.validation.write_text(json.dumps(record))
    assert validation.load(copied, judged.replay) is None


def test_progress_is_told(run: RunFiles, judged: Judged) -> None:
    seen: list[int] = []
    examine(run, seen.append)
    assert seen == list(range(1, 1 + len(judged.replay.trials)))


def test_a_verdict_without_the_seed_says_invalid(judged: Judged) -> None:
    failed = [
        replace(f, outcome=Outcome.FAILED, text="torn") if f.rule == "chain" else f
        for f in judged.verdict.findings
    ]
    assert verdict_word(replace(judged.verdict, findings=tuple(failed)), validated=False) == "INVALID"
