"""Which proposals are repeated, how processes share them, and how an interrupted validation is resumed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.errors import AiperfError
from aiperf.journal.events import Dispatched, Ended, Opened
from aiperf.rules import reproduction
from aiperf.rules.ending import Answer
from aiperf.rules.reproduction import SavedProgress, repeated_numbers, search
from aiperf.rules.rule import Evidence, Inspection, Outcome
from aiperf.wire.reports import Finished
from aiperf.wire.trial import State
from tests.aiperf.rules.forged import LOST, Edit, each, evidence, found, judged, proposed, with_config
from tests.journals import Scene, Simulation, Timed, replayed, told

MANY = told(Scene(groups=8, minutes=0, max_trials=80, epochs=2))


def with_another_seed(*trials: int) -> Edit:
    def edit(event: Dispatched) -> Dispatched:
        return proposed(event, seed=event.trial.seed + 1) if event.trial.number in trials else event

    return each(Dispatched, edit)


def test_all_proposals_of_a_cheap_search_are_repeated_and_a_new_sample_of_a_dear_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sample that followed from the journal was ground: its last line was changed until it fitted."""
    monkeypatch.setattr(reproduction, "MOST_ASKED", 20)
    for name in ("evolution", "final", "random"):
        assert repeated_numbers(replayed(with_config(**{"search.name": name})(MANY))) == range(80)
    for dear in ({"search.name": "foresight"}, {"search.name": "bayesian"}, {"tuning.name": "optuna"}):
        run = replayed(with_config(**dear)(MANY))
        first, second = repeated_numbers(run), repeated_numbers(run)
        assert len(set(first)) == len(set(second)) == 20
        assert first != second
    every_odd = found(with_another_seed(*range(1, 80, 2))(MANY), "search")
    assert every_odd.text.startswith("trial 1: from the results so far the search proposes")


def test_proposals_that_take_more_work_than_is_done_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(MANY, "search").outcome is Outcome.PASSED
    monkeypatch.setattr(reproduction, "LEAST_WORK", 0)
    monkeypatch.setattr(reproduction, "WORK_OF_A_PROPOSAL", 20)
    seen = found(MANY, "search")
    assert (seen.outcome, seen.text) == (
        Outcome.UNKNOWN,
        "its proposals take more work than is done to repeat 80: more than 1,600 readings of a tensor",
    )


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Evidence:
    """A run whose proposals several processes share, which tell each one."""
    monkeypatch.setattr(reproduction, "SHARED_FROM", 1)
    monkeypatch.setattr(reproduction, "TOLD_EACH_SECONDS", -1.0)
    monkeypatch.setattr(reproduction, "num_processes", lambda: 3)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return replace(evidence(MANY), progress=lambda text: None)


def test_processes_share_them_and_find_the_same(shared: Evidence) -> None:
    texts: list[str] = []
    seen = search(replace(shared, progress=texts.append))
    assert (seen.text, seen.contradictions) == ("80 of 80 proposals reproduced", ())
    numbers = [int(text.split()[0]) for text in texts]
    assert numbers == sorted(numbers)
    assert numbers[-1] == 80
    assert not SavedProgress.of(shared.replay).path.exists()
    forged = replace(evidence(with_another_seed(50)(MANY)), progress=texts.append)
    (wrong,) = search(forged).contradictions
    assert wrong.startswith("trial 50: from the results so far")


def test_an_interrupted_validation_is_resumed_by_the_same_user_for_the_same_journal(shared: Evidence) -> None:
    def interrupt(text: str) -> None:
        if int(text.split()[0]) >= 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(replace(shared, progress=interrupt))
    kept = SavedProgress.of(shared.replay)
    assert 30 <= kept.read() < 80
    assert SavedProgress.of(replayed(with_another_seed(3)(MANY)[:-1])).read() == 0
    texts: list[str] = []
    assert search(replace(shared, progress=texts.append)).text == "80 of 80 proposals reproduced"
    assert texts[0].endswith("of 80 proposals were reproduced by an earlier validation")
    kept.keep(50)
    kept.path.chmod(0o666)
    assert kept.read() == 0, "others could have written it"


def test_what_cannot_be_kept_is_said(shared: Evidence, tmp_path: Path) -> None:
    (tmp_path / "aiperf-hpc").write_text("a file")
    texts: list[str] = []
    assert search(replace(shared, progress=texts.append)).known
    assert any("cannot be written: Not a directory" in text for text in texts)


def test_a_master_checks_alone(shared: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have threads and MPI, and must not be forked."""
    monkeypatch.setattr(reproduction, "shared_answers", None)
    assert search(replace(shared, progress=None)).text == "80 of 80 proposals reproduced"


def test_a_process_that_dies_is_no_answer(shared: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*given: object) -> Inspection | None:
        os._exit(9)

    monkeypatch.setattr(reproduction, "_repeated", dies)
    with pytest.raises(AiperfError, match="a process that checked a part of the run ended: exit code 9"):
        search(shared)


# Failures, which nothing proves


class _Steering(Simulation):
    """A vendor's groups, which call trials failed that the search shall not go on with."""

    unwanted: frozenset[int] = frozenset()
    late = False
    """Whether they are trained to their end first, so that their work is credited."""

    def attempt(self, job: Dispatched, t: float) -> Iterator[Timed]:
        number = job.trial.number
        failed = Finished(number, job.attempt, State.FAILED, "rank 1: the loss is not finite")
        if number not in self.unwanted:
            yield from super().attempt(job, t)
            return
        for timed in super().attempt(job, t) if self.late else ():
            if not isinstance(timed[1], Ended):
                yield timed
                t = timed[0]
        yield t + 0.002, Ended(failed, t + 0.002)


def steered(*unwanted: int, late: bool = False) -> list[Timed]:
    run = _Steering(Scene(minutes=0, max_trials=40, epochs=2))
    run.unwanted, run.late = frozenset(unwanted), late
    return run.run()


@pytest.mark.parametrize("late", [False, True], ids=["at once", "at their end"])
def test_failures_that_could_steer_the_search_cost_the_class(late: bool) -> None:
    verdict = judged(steered(9, 12, 30, late=late))
    finding = found(verdict, "search")
    assert verdict.answer is Answer.VALID
    assert finding in verdict.unmet
    assert finding.text.startswith("3 of 40 trials failed, more than 5.0 %")


def test_a_journal_of_the_first_rules_is_judged_as_it_was() -> None:
    earlier = each(Opened, lambda event: replace(event, rules=1))
    assert found(earlier(steered(9, 12, 30)), "search").outcome is Outcome.PASSED


@pytest.mark.parametrize("run", [LOST, steered(9), steered(9, 30)], ids=["lost", "one", "a twentieth"])
def test_few_failures_are_honest(run: list[Timed]) -> None:
    assert found(run, "search").outcome is Outcome.PASSED
