"""Whole runs whose hyper-parameters are tuned, or whose rounds are rungs: valid, and made again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from aiperf.config import Config, load_preset, with_overrides
from aiperf.errors import MissingExtra
from aiperf.journal.events import Dispatched, Opened
from aiperf.journal.replay import Replay
from aiperf.proposing.jobs import Jobs
from aiperf.proposing.proposals import libraries, new_tuner, with_tuner
from aiperf.rules.reproduction import search
from aiperf.rules.rule import Inspection
from aiperf.rules.verdict import evidence_of
from aiperf.wire.trial import Trial
from nas.seeds import residual
from nas.tuning import SPACE, installed
from tests.aiperf.rules.forged import each, failed, one, recorded, with_config, with_hyper
from tests.journals import Scene, Timed, replayed, told

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
