"""The test bed of searches: virtual times, real training, and nothing that depends on this machine's load."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aiperf.config import Config, load_preset, with_overrides
from aiperf.engines.engine import Engine
from aiperf.engines.fused import Fused, unavailable
from aiperf.journal.events import Began, Origin, Stepped
from aiperf.journal.file import read_journal
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.rules.ending import Answer
from aiperf.rules.verdict import judge
from aiperf.score.lineage import recount
from aiperf.wire.trial import State
from benchmarks.trained_world import OVERHEAD_SECONDS, RATE, TrainingWorld, train_in
from nas.ops import OPS
from tests.mpi.jobs import TINY

GROUPS, SECONDS = 3, 1.0


def config(**changes: object) -> Config:
    """Trials of four steps, so that a group makes some of them in its second."""
    short = {"data.training_examples": 64, "training.epochs": (1,), "training.dropout": 0.3}
    limits = {"limits.minutes": SECONDS / 60, "search.population": 2}
    return with_overrides(load_preset(str(TINY)), {**short, **limits, **changes})


def trained(directory: Path, groups: int = GROUPS, **changes: object) -> Replay:
    own = config(**changes)
    return train_in(TrainingWorld(own, groups), own, directory, ("bed",))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bed")


@pytest.fixture(scope="module")
def replay(directory: Path) -> Replay:
    return trained(directory / "run")


def test_a_run_is_simulated_and_never_valid(directory: Path, replay: Replay) -> None:
    assert (replay.opened.origin, replay.faults) == (Origin.SIMULATED, [])
    verdict = judge(replay, RunFiles(directory / "run"))
    assert (verdict.answer, verdict.valid) == (Answer.SIMULATED, False)
    assert replay.tested is not None


def test_the_same_run_has_the_same_journal(directory: Path, replay: Replay) -> None:
    """With one thread, however many cores there are: sums that threads share depend on their number."""
    trained(directory / "again")
    assert torch.get_num_threads() == 1
    (_, *first), (_, *again) = (read_journal(RunFiles(directory / name).journal) for name in ("run", "again"))
    assert [(line.t, line.event) for line in again] == [(line.t, line.event) for line in first]


def test_a_work_takes_as_long_as_its_operations(replay: Replay) -> None:
    counts = recount(replay).counts
    by_group: dict[int, float] = {}
    for attempt in replay.attempts:
        of = counts[attempt.trial.number]
        for validation in attempt.validations:
            segment = validation.segment
            train = segment.train_examples * of.train_price(OPS) / RATE
            asked = segment.of * of.evaluate.price(OPS) / RATE
            assert segment.train_seconds == pytest.approx(train, abs=1e-5)
            assert segment.validate_seconds == pytest.approx(asked, abs=1e-5)
            began = by_group.get(attempt.group, 0.0) + OVERHEAD_SECONDS
            assert validation.end == pytest.approx(began + train + asked, abs=1e-4)
            by_group[attempt.group] = validation.end
    assert len(by_group) == GROUPS


def test_a_trial_knows_only_what_had_ended_before_it_was_proposed(replay: Replay) -> None:
    ends = {each.trial.number: each.validations[-1].end for each in replay.attempts if each.validations}
    children = [attempt for attempt in replay.attempts if attempt.trial.parent is not None]
    assert children
    assert all(ends[attempt.trial.parent or 0] <= attempt.dispatch_time for attempt in children)


@pytest.mark.skipif(bool(unavailable()), reason=unavailable())
def test_the_configured_engine_makes_the_steps(
    directory: Path, replay: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[str]()
    monkeypatch.setattr(Fused, "step", lambda engine, *batch: made.append("") or Engine.step(engine, *batch))
    trained(directory / "fused", groups=1, **{"limits.max_trials": 1, "training.step": "fused"})
    events = [line.event for line in read_journal(RunFiles(directory / "fused").journal)]
    assert [event.started.engine for event in events if isinstance(event, Began)] == ["fused"]
    assert replay.opened.config.training.step == "eager"
    eager, fused = (losses_of_the_first(directory / name) for name in ("run", "fused"))
    assert (len(made), fused) == (4, pytest.approx(eager, rel=1e-3))


def test_a_trial_is_not_disturbed_by_those_in_between(directory: Path, replay: Replay) -> None:
    """Its dropout draws from a generator that the trials of other groups use, too."""
    trained(directory / "alone", groups=1, **{"limits.max_trials": 1})
    alone, between = (losses_of_the_first(directory / name) for name in ("alone", "run"))
    assert len(alone) == 2
    assert alone == between


def losses_of_the_first(run: Path) -> list[float]:
    """By block of the first trial."""
    events = [line.event for line in read_journal(RunFiles(run).journal)]
    blocks = [event.block for event in events if isinstance(event, Stepped)]
    return [block.loss for block in blocks if block.trial == 0]


def test_a_trial_whose_loss_is_no_number_fails(tmp_path: Path) -> None:
    found = trained(tmp_path / "run", **{"training.learning_rate": 2e9})
    states = {attempt.state for attempt in found.attempts if attempt.ended is not None}
    assert State.FAILED in states
    reasons = {each.reason for each in found.attempts if each.state is State.FAILED}
    assert all(reason.startswith("rank ") and "NotFinite: the loss is " in reason for reason in reasons)
