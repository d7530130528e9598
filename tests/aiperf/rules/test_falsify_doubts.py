"""Forgeries that an honest run on a bad day could resemble: the rule is "unknown", which costs the class."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from aiperf.hardware.bound import bound_of_group
from aiperf.journal import events
from aiperf.journal.events import Closed, Event, LegBegan, RankReady
from aiperf.rules.rule import Outcome
from tests.aiperf.rules.forged import (
    NAMES,
    TIMED,
    Edit,
    changed,
    each,
    found,
    judged,
    of,
    places,
    together,
    with_config,
    with_ready,
    worked,
)
from tests.journals import READY, Scene, Timed, part, told, within
from tests.tables import ComesTo

RELEASE = 12.0
TWO_LONG_LEGS = told(Scene(minutes=0.5, killed_at=20.0))
PAIRS = told(Scene(minutes=0.25, ranks_of_a_group=2))


def in_six_milliseconds(timed: list[Timed]) -> list[Timed]:
    """All that was done, in a seventieth of the time; the work itself is said to have taken as long."""

    def shorter(t: float) -> float:
        return RELEASE + (t - RELEASE) / 70 if t > RELEASE else t

    def moved(event: Event) -> Any:
        names = [name for name in ("end", "deadline") if hasattr(event, name)]
        return replace(event, **{name: shorter(getattr(event, name)) for name in names})

    return [(t if isinstance(e, events.Tested) else shorter(t), moved(e)) for t, e in timed]


def worked_in_each_leg(*factors: float) -> Edit:
    """The work of each leg, said to have taken this many times as long."""

    def edit(timed: list[Timed]) -> list[Timed]:
        first, second = (*places(timed, LegBegan),)
        legs = timed[:second], timed[second:]
        assert first < second
        return [line for lines, factor in zip(legs, factors) for line in worked(factor)(lines)]

    return edit


def a_longer_last_validation(timed: list[Timed]) -> list[Timed]:
    """It is said to have begun while the group trained on; what the group idled before makes room for it."""
    place = places(timed, Closed)[-1]
    closed = timed[place][1]
    seconds = part(closed).validate_seconds + 0.13
    return changed(timed, place, within(closed, validate_seconds=seconds))


A_MOMENT, SIX_MILLISECONDS = told(Scene(minutes=0.007)), with_config(**{"limits.minutes": 0.0001})


def with_rank_2(**fields: object) -> Edit:
    return each(RankReady, lambda e: within(e, **fields) if e.ready.rank % 2 == 0 else e)


def doubted(rule: str, edit: Edit) -> tuple[str, str]:
    """What a rule says that costs the class."""
    verdict = judged(edit(TIMED))
    finding = found(verdict, rule)
    assert finding in verdict.unmet
    return finding.outcome.name, finding.text


def test_what_may_be_honest_costs_the_class(comes_to_what_was_read: ComesTo) -> None:
    comes_to_what_was_read("doubts.txt", {**NAMES, **globals()})


@pytest.mark.parametrize("factors", [(1.012, 1.0), (1.0, 1.0079)])
def test_what_is_late_in_one_leg_is_within_the_share(factors: tuple[float, float]) -> None:
    assert found(worked_in_each_leg(*factors)(TWO_LONG_LEGS), "times").outcome is Outcome.PASSED


# The listed devices are bounded whatever stands next to them


@pytest.mark.parametrize(
    "edit",
    [
        of(PAIRS, with_rank_2(device="Abacus 9"), worked(1e-7)),
        of(PAIRS, with_rank_2(device="Abacus 9"), each(Closed, lambda e: within(e, validate_seconds=1e-8))),
        of(TIMED, with_rank_2(device="Abacus 9"), worked(1e-7)),
        together(with_ready(device="Tesla V100-SXM2-16GB"), worked(1e-4)),
    ],
    ids=["in its group", "in its validations", "in another group", "in a format that it has not"],
)
def test_a_device_without_a_bound_lifts_no_other(edit: Edit) -> None:
    finding = found(edit(TIMED), "speed")
    assert finding.outcome is Outcome.FAILED
    assert "did more work than its devices can do" in finding.text


def test_a_group_is_held_by_the_slowest_of_its_listed_devices() -> None:
    names = ("NVIDIA H200", "Abacus 9", "NVIDIA A100-SXM4-80GB")
    ranks = [replace(READY, rank=rank, device=name) for rank, name in enumerate(names)]
    a100 = bound_of_group(ranks[2:], "bf16")
    assert a100 is not None
    assert bound_of_group(ranks, "bf16") == 2 * 3 * a100


def test_a_format_that_a_device_computes_in_fp32_has_the_bound_of_fp32() -> None:
    assert found(with_ready(device="Tesla V100-SXM2-16GB")(TIMED), "speed").outcome is Outcome.PASSED
    assert found(with_rank_2(device="Abacus 9")(TIMED), "speed").outcome is Outcome.UNKNOWN
