"""Runs that were not measured are never VALID, whatever the rules find; what a forger gains unmarked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.files import RunFiles
from aiperf.journal import events
from aiperf.journal.events import Closed, Event, LegEnded, Opened, Origin
from aiperf.journal.file import chained, read_journal
from aiperf.journal.replay import replay
from aiperf.rules.ending import Answer, can_go_on, shortfall
from aiperf.rules.rule import Kind, Outcome
from aiperf.rules.verdict import RULES, RunClass, Verdict, judge
from tests.journals import Scene, Timed, of_origin, told, write_run

TIMED = told(Scene(minutes=0.15))
UNMEASURED = [origin for origin in Origin if origin is not Origin.MEASURED]


def verdict_on(directory: Path, timed: list[Timed]) -> Verdict:
    files = write_run(directory, timed)
    return judge(replay(read_journal(files.journal)), files)


def until(kind: type[Event]) -> list[Timed]:
    return TIMED[: next(place for place, (_, event) in enumerate(TIMED) if isinstance(event, kind))]


def contradicted(timed: list[Timed]) -> list[Timed]:
    return [
        (t, replace(event, code_hash="f" * 64) if isinstance(event, Opened) else event) for t, event in timed
    ]


@pytest.mark.parametrize("origin", UNMEASURED)
class TestARunThatWasNotMeasured:
    def test_is_simulated_where_else_it_were_valid(self, origin: Origin, tmp_path: Path) -> None:
        measured = verdict_on(tmp_path / "measured", TIMED)
        verdict = verdict_on(tmp_path / "other", of_origin(TIMED, origin))
        assert (measured.answer, measured.run_class) == (Answer.VALID, RunClass.SMOKE)
        assert (verdict.answer, verdict.run_class, verdict.valid) == (Answer.SIMULATED, None, False)
        assert verdict.cause.startswith(f"the run is {origin.value}: no network was trained")
        assert [f.rule for f in verdict.findings] == [rule.name for rule in RULES]
        others = [[f for f in one.findings if f.rule != "chain"] for one in (measured, verdict)]
        assert others[0] == others[1]

    def test_is_simulated_where_else_it_were_invalid(self, origin: Origin, tmp_path: Path) -> None:
        wrong = contradicted(TIMED)
        assert verdict_on(tmp_path / "measured", wrong).answer is Answer.INVALID
        verdict = verdict_on(tmp_path / "other", of_origin(wrong, origin))
        assert verdict.answer is Answer.SIMULATED
        assert [f.rule for f in verdict.failed(Kind.INTEGRITY)] == ["code"]
        mark, rule = f"the run is {origin.value}: ", "; code: "
        assert 0 == verdict.cause.index(mark) < verdict.cause.index(rule)

    @pytest.mark.parametrize(
        ("timed", "answer"),
        [
            (until(LegEnded), Answer.INCOMPLETE),
            ([*until(Closed), (99.0, LegEnded("deadline", 99.0))], Answer.NO_RESULT),
        ],
        ids=["cut off", "without a validation"],
    )
    def test_lacks_what_any_run_would(
        self, timed: list[Timed], answer: Answer, origin: Origin, tmp_path: Path
    ) -> None:
        verdict = verdict_on(tmp_path / "run", of_origin(timed, origin))
        assert verdict.shortfall is not None
        assert verdict.answer is answer
        assert verdict.cause.startswith(f"{verdict.shortfall.text}; the run is {origin.value}: ")
        if origin is Origin.SIMULATED:
            assert "resume" not in verdict.cause

    def test_is_in_no_class_even_if_every_rule_passed(self, origin: Origin, tmp_path: Path) -> None:
        found = verdict_on(tmp_path / "run", TIMED).findings
        passed = tuple(replace(f, outcome=Outcome.PASSED) for f in found)
        assert Verdict(passed).run_class is RunClass.RANKED
        assert Verdict(passed, origin=origin).run_class is None

    def test_is_continued_only_by_workers_that_pretend(self, origin: Origin) -> None:
        measured = replay([])
        other = replay([])
        for t, event in until(LegEnded):
            measured.add(t, event)
        for t, event in of_origin(until(LegEnded), origin):
            other.add(t, event)
        assert can_go_on(measured)
        assert can_go_on(other) is (origin is Origin.PRETENDED)


@pytest.mark.parametrize(
    ("origin", "cut_off", "untested"),
    [
        (Origin.MEASURED, "`aiperf-hpc resume RUN` continues it", "; `aiperf-hpc resume RUN` continues it"),
        (
            Origin.PRETENDED,
            "`aiperf-hpc resume RUN --pretend RUN/assumptions.toml` continues it",
            "; `aiperf-hpc resume RUN --pretend RUN/assumptions.toml` continues it",
        ),
        (Origin.SIMULATED, "it is not continued: start a new run", ""),
    ],
)
def test_the_way_on_that_is_named_is_one_that_there_is(origin: Origin, cut_off: str, untested: str) -> None:
    def said(timed: list[Timed]) -> str:
        told_so_far = replay([])
        for t, event in of_origin(timed, origin):
            told_so_far.add(t, event)
        found = shortfall(told_so_far, credited=True)
        assert found is not None
        return found.text

    assert said(until(LegEnded)).endswith(f"if it was killed, {cut_off}")
    tests = f"{untested} and tests the best network" if untested else ""
    assert said(until(events.Tested)) == f"no network was tested: the test did not finish{tests}"


def test_each_answer_has_the_exit_code_on_which_scripts_rely() -> None:
    assert {answer.value: answer.exit_code for answer in Answer} == {
        "VALID": 0,
        "INVALID": 1,
        "NO RESULT": 3,
        "SIMULATED": 4,
        "INCOMPLETE": 75,
    }


def test_the_mark_removed_with_a_careless_hand_breaks_the_chain(tmp_path: Path) -> None:
    files = write_run(tmp_path / "run", of_origin(TIMED, Origin.SIMULATED))
    text = files.journal.read_text(encoding="utf-8")
    files.journal.write_text(text.replace(',"origin":"simulated"', "", 1), encoding="utf-8")
    verdict = judge(replay(read_journal(files.journal)), files)
    assert verdict.answer is Answer.INVALID
    assert verdict.cause == "chain: line 1 does not match the hash of the line above it"


def test_the_mark_removed_with_the_chain_computed_again_leaves_no_witness(tmp_path: Path) -> None:
    """As docs/score.md says: it is then VALID, and smoke; only who invents logs as well gets further."""
    files = RunFiles(tmp_path)
    files.journal.write_text("".join(f"{line}\n" for line in chained(TIMED)), encoding="utf-8")
    verdict = judge(replay(read_journal(files.journal)), files)
    assert (verdict.answer, verdict.run_class) == (Answer.VALID, RunClass.SMOKE)
    assert {f.rule for f in verdict.unmet} >= {"witnesses", "ranked error"}
    assert "weights" in {f.rule for f in verdict.findings if f.outcome is Outcome.UNKNOWN}


def test_a_mark_that_a_later_line_takes_back_stays(tmp_path: Path) -> None:
    timed = of_origin(TIMED, Origin.SIMULATED)
    verdict = verdict_on(tmp_path / "run", [timed[0], TIMED[0], *timed[1:]])
    assert verdict.answer is Answer.SIMULATED
