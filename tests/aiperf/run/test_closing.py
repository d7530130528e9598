"""Groups that are still at work when a run ends, on a virtual clock: who is waited for, and who is lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from aiperf.pretending.assumptions import Assumptions, assumed
from aiperf.run.master import STOP_SECONDS
from aiperf.simulation.machine import SimulatedMachine
from aiperf.trial import State
from tests.aiperf.legs import reasons
from tests.aiperf.simulation.simulated import Played, config, steady

TARGET = {"limits.target_error": 0.7, "training.epochs": [1]}
"""Reached by the first child. When the stop comes, its group has just begun the next one."""


def slow_to_validate() -> Assumptions:
    """About a hundred seconds, in which a group says now and then that it works."""
    return steady(speed=replace(assumed("h100").speed, validation=0.05))


def played(directory: Path, nodes: int, assumptions: Assumptions, minutes: float, **limits: object) -> Played:
    return Played(directory / "run", SimulatedMachine(nodes, 1), assumptions, config(minutes, **limits))


def test_a_validation_that_outlasts_the_deadline_is_waited_for(tmp_path: Path) -> None:
    """Without an earlier one nobody knows how long it takes, so it begins at the deadline."""
    told = played(tmp_path, 2, slow_to_validate(), 5.0).replay
    assert told.leg.ended is not None
    assert told.leg.ended.reason == "deadline"
    assert told.leg.ended.end == told.leg.deadline
    closing = [attempt.validations[-1] for attempt in told.attempts if attempt.validations]
    assert [validation.segment.validate_seconds > STOP_SECONDS + 2 for validation in closing] == [True] * 2
    assert reasons(told) == []
    assert [told.trials[number].state for number in (0, 1)] == [State.STOPPED] * 2


def test_the_only_group_closes_its_trial_however_long_it_validates(tmp_path: Path) -> None:
    """Else the network that reached the target would not be tested: nobody else could."""
    told = played(tmp_path, 1, slow_to_validate(), 60.0, **TARGET).replay
    assert told.leg.ended is not None
    assert told.leg.ended.reason == "target"
    assert reasons(told) == []
    assert [told.trials[number].state for number in range(3)] == [State.COMPLETE] * 2 + [State.STOPPED]
    assert told.tested is not None


def test_groups_that_need_longer_after_a_stop_lose_their_trials_and_make_the_test(tmp_path: Path) -> None:
    """By design: the rules allow no minute between the trials that a stop ends. But the groups are there."""
    told = played(tmp_path, 2, slow_to_validate(), 60.0, **TARGET).replay
    assert told.leg.ended is not None
    assert told.leg.ended.reason == "target"
    assert reasons(told) == ["did not stop within 32 s"] * 2
    begun = [attempt.state for attempt in told.attempts if attempt.began]
    assert begun == [State.COMPLETE] * 3 + [State.LOST] * 2
    assert told.tested is not None
    assert told.faults == []


def test_nobody_is_lost_whose_answer_waits_for_the_master(tmp_path: Path) -> None:
    """All groups close at once, within 26 s of the deadline; the master hears the last of it much later."""
    usual = assumed("h100")
    slow_master = steady(
        messages=replace(usual.messages, master_seconds=0.1), speed=replace(usual.speed, step_seconds=20.0)
    )
    told = played(tmp_path, 100, slow_master, 10.0).replay
    assert told.leg.deadline is not None
    last = max(attempt.end_time or 0.0 for attempt in told.attempts)
    assert last > told.leg.deadline + STOP_SECONDS + 2, "else nothing waited for the master"
    assert reasons(told) == []
    assert [told.trials[number].state for number in range(100)] == [State.STOPPED] * 100
