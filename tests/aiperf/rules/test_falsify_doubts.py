"""Forgeries that an honest run on a bad day could resemble: the rule is "unknown", which costs the class."""

from __future__ import annotations

from dataclasses import replace

from aiperf.hardware.bound import bound_of_group
from aiperf.journal import events
from aiperf.journal.events import Closed, LegBegan, RankReady
from tests.aiperf.rules.forged import (
    NAMES,
    TIMED,
    Edit,
    changed,
    each,
    found,
    judged,
    places,
    retimed,
    with_config,
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

    return [(t if isinstance(e, events.Tested) else shorter(t), retimed(e, shorter)) for t, e in timed]


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


def doubted(rule: str, edit: Edit) -> tuple[str, str, str]:
    """The verdict, and what a rule says that costs the class."""
    verdict = judged(edit(TIMED))
    finding = found(verdict, rule)
    assert finding in verdict.unmet
    return verdict.answer.name, finding.outcome.name, finding.text


def test_what_may_be_honest_costs_the_class_and_a_device_without_a_bound_lifts_no_other(
    comes_to_what_was_read: ComesTo,
) -> None:
    """A format that a device computes in fp32 has the bound of fp32. What is late in one of two legs is
    within their share."""
    comes_to_what_was_read("doubts.txt", {**NAMES, **globals()})


def test_a_group_is_held_by_the_slowest_of_its_listed_devices() -> None:
    names = ("NVIDIA H200", "Abacus 9", "NVIDIA A100-SXM4-80GB")
    ranks = [replace(READY, rank=rank, device=name) for rank, name in enumerate(names)]
    a100 = bound_of_group(ranks[2:], "bf16")
    assert a100 is not None
    assert bound_of_group(ranks, "bf16") == 2 * 3 * a100
