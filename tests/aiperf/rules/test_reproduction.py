"""Which proposals are made again, also of tuned runs and of rungs; how processes share them; and failures."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aiperf.config import Config, load_preset, with_overrides
from aiperf.errors import AiperfError, MissingExtra
from aiperf.journal.events import Dispatched, Ended, Opened
from aiperf.journal.replay import Replay
from aiperf.proposing.jobs import Jobs
from aiperf.proposing.proposals import libraries, new_tuner, with_tuner
from aiperf.rules import reproduction
from aiperf.rules.reproduction import SavedProgress, repeated_numbers, search
from aiperf.rules.rule import Evidence, Inspection, Outcome
from aiperf.rules.verdict import evidence_of
from aiperf.wire.reports import Finished
from aiperf.wire.trial import State, Trial
from nas.seeds import residual
from nas.tuning import SPACE, installed
from tests.aiperf.rules.forged import (
    NAMES,
    Edit,
    each,
    evidence,
    failed,
    found,
    judged,
    one,
    proposed,
    recorded,
    with_config,
    with_hyper,
)
from tests.journals import Scene, Simulation, Timed, replayed, told
from tests.tables import ComesTo

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


def test_failures_that_could_steer_the_search_cost_the_class_and_few_are_honest(
    comes_to_what_was_read: ComesTo,
) -> None:
    """Three of forty, whether they fail at once or at their end; the first rules did not ask."""

    def says(run: list[Timed]) -> tuple[str, bool, str]:
        """The verdict, whether the search costs the class, and what is said of it."""
        verdict = judged(run)
        finding = found(verdict, "search")
        return verdict.answer.name, finding in verdict.unmet, finding.text

    earlier = each(Opened, lambda event: replace(event, rules=1))
    comes_to_what_was_read("steered.txt", {**NAMES, **globals(), "says": says, "earlier": earlier})


# Whole runs whose hyper-parameters are tuned, or whose rounds are rungs


HALVING = {"training.schedule": "halving", "training.epochs": (1, 3, 9, 27), "search.population": 30}
NNI = pytest.param({"tuning.name": "nni"}, marks=pytest.mark.nni)
OPTUNA = pytest.param({"tuning.name": "optuna"}, marks=pytest.mark.nni)
WAYS = [HALVING, *({"search.name": name} for name in ("foresight", "final", "random")), NNI, OPTUNA]


def timed(changes: dict[str, Any], **scene: Any) -> list[Timed]:
    short = {"training.epochs": (10,), "training.validate_every_examples": 400, "tuning.first_round": 2}
    here = Scene(changes=tuple((short | changes).items()), **({"minutes": 0.3, "groups": 2} | scene))
    return with_libraries(told(here), libraries(here.config))


def with_libraries(lines: list[Timed], versions: Mapping[str, str]) -> list[Timed]:
    return each(Opened, lambda event: replace(event, libraries=versions))(lines)


def trials(run: Replay) -> list[Trial]:
    return [story.attempts[0].trial for story in run.trials.values()]


def seen_in(lines: list[Timed]) -> Inspection:
    """What the rule `search` sees."""
    return search(evidence_of(replayed(lines), None))


@pytest.mark.parametrize("changes", WAYS)
def test_the_run_is_valid_and_every_proposal_is_made_again(changes: dict[str, Any]) -> None:
    lines = timed(changes, out_of_memory=frozenset({3}), lost=((1, 20.0),))
    assert failed(lines) == {}
    number = len(replayed(lines).trials)
    assert seen_in(lines).text == f"{number} of {number} proposals reproduced"


@pytest.mark.parametrize("changes", [{}, NNI, OPTUNA])
@pytest.mark.parametrize(
    "wrong", [{"learning_rate": 0.11}, {"dropout": 0.3}, {"batch_size": 25}, {"momentum": 0.5}]
)
def test_another_hyper_parameter_is_a_contradiction(changes: dict[str, Any], wrong: dict[str, Any]) -> None:
    edit = each(Dispatched, lambda event: with_hyper(event, **wrong), 2)
    seen = seen_in(edit(timed(changes)))
    assert any("trial 2: " in text and "hyper-parameters" in text for text in seen.contradictions), seen


@pytest.mark.parametrize("changes", [NNI, OPTUNA])
def test_from_its_round_on_hyper_parameters_are_tuned(changes: dict[str, Any]) -> None:
    found = trials(replayed(timed(changes, minutes=0.6)))
    first = [trial.hyper for trial in found if trial.round < 2]
    later = {trial.hyper for trial in found if trial.round >= 2}
    assert {(hyper.learning_rate, hyper.batch_size) for hyper in first} == {(0.1, 50)}
    assert len(later) > len(found) / 2
    assert len({hyper.batch_size for hyper in later}) > 1


def test_another_version_of_a_library_makes_it_unknown_and_not_wrong() -> None:
    lines = with_libraries(timed({}), {"scikit-learn": "0.1"})
    seen = seen_in(lines)
    assert seen.contradictions == ["scikit-learn is recorded, but this search does not use it"]
    surrogate = with_config(**{"search.name": "bayesian"})(lines)
    seen = seen_in(surrogate)
    assert (seen.known, seen.contradictions) == (False, ())
    here = libraries(one(Opened, surrogate).config)["scikit-learn"]
    assert seen.text == f"the run's proposals depend on scikit-learn 0.1, but {here} is installed"


def test_a_run_of_another_version_of_the_search_is_unknown_and_not_wrong() -> None:
    """The recorded run of text is of the version in which heads could be wider than the stream."""
    for tuner, own in (("none", 3), ("optuna", 4)):
        seen = seen_in(with_config(**{"tuning.name": tuner})(recorded("language")))
        assert (seen.known, seen.contradictions) == (False, ())
        assert seen.text == f"the run used version 2 of the search; this program has version {own}"


def test_a_tuner_has_the_space_of_its_task_around_the_configuration() -> None:
    assert new_tuner(config_with("none")).space is SPACE
    text = with_overrides(load_preset("text"), {"training.weight_decay": 0.2})
    decay = new_tuner(text).space["weight_decay"]
    assert (decay.low, decay.high, decay.log) == (0.05, 0.8, True)
    assert "label_smoothing" not in new_tuner(text).space


def test_what_the_search_rests_on_is_recorded() -> None:
    def found(**changes: str) -> set[str]:
        overrides = {key.replace("_", "."): value for key, value in changes.items()}
        return set(libraries(with_overrides(load_preset("digits"), overrides)))

    assert found(search_name="evolution") == set()
    assert found(search_name="foresight") == {"numpy"}  # a law is fitted
    assert found(search_name="bayesian") == {"scikit-learn", "numpy"}
    assert found(tuning_name="optuna", search_name="bayesian") == {"optuna", "scikit-learn", "numpy"}


def test_a_child_keeps_the_hyper_parameters_of_its_parent() -> None:
    """Also those that a lack of memory has changed."""
    found = replayed(timed({"search.population": 2}, groups=1, minutes=0.5, out_of_memory=frozenset({0})))
    assert found.trials[0].trial.hyper.batch_size == 25
    children = [story.attempts[0].trial for story in found.trials.values() if story.trial.parent == 0]
    assert children
    assert {trial.hyper.batch_size for trial in children} == {25}


def config_with(name: str) -> Config:
    return with_overrides(load_preset("digits"), {"tuning.name": name})


def test_a_tuner_that_is_not_installed_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiperf.proposing.proposals.installed", lambda library: not library)
    for name in ("nni", "optuna"):
        with pytest.raises(MissingExtra, match=rf"{name} is not installed; .* install '?{name}[>=]="):
            Jobs.of(config_with(name), residual(), Replay())
    assert new_tuner(config_with("none")).library == ""


def test_auto_takes_what_is_there_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, name, words in (
        ({"nni", "optuna"}, "nni", "tuned by nni"),
        ({"optuna"}, "optuna", "tuned by optuna"),
        (set[str](), "none", "not tuned: neither nni nor optuna is installed; remedy: "),
    ):
        monkeypatch.setattr(
            "aiperf.proposing.proposals.installed", lambda library, there=there: library in there
        )
        config, said = with_tuner(config_with("auto"))
        assert config.tuning.name == name
        assert words in said
    assert with_tuner(config_with("none")) == (config_with("none"), "")
    assert installed("")
    assert not installed("a_library_that_nobody_wrote")
