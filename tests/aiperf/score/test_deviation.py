"""Which devices deviate, and of which nothing is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from aiperf.journal import events
from aiperf.score.deviation import Agreement, agreement, suspects
from aiperf.wire.reports import DeviceCheck
from analysis.readings.device_checks import device_check_text
from tests.journals import Timed, ready_alone, replayed, within
from tests.tables import ComesTo

Told = Mapping[int, str | tuple[str, ...]]
"""What ranks computed, by rank; several hashes if laps differ, none if nothing was computed."""


def checks(told: Told) -> Iterable[events.DeviceChecked]:
    for rank, digests in told.items():
        found = (digests,) if isinstance(digests, str) else digests
        yield events.DeviceChecked(
            DeviceCheck(rank, found, 2, 1.0, "" if found else "RuntimeError: no kernel")
        )


def run(
    before: Told,
    repeats: Told | None = None,
    after: Told | None = None,
    kinds: Mapping[int, str] | None = None,
    rules: int = 2,
    leg: int = 0,
) -> list[Timed]:
    """A run whose ranks, from 1 on hosts of their own, said that."""

    def of_its_kind(event: events.Event) -> events.Event:
        if not isinstance(event, events.RankReady):
            return event
        rank = event.ready.rank
        return within(event, settings={"threads": str(rank), "caches": (kinds or {}).get(rank, "32K")})

    return [
        *((t, of_its_kind(event)) for t, event in ready_alone(sorted(before), leg, rules=rules)),
        *((2.0, check) for check in checks(before)),
        *((3.0, check) for check in checks(repeats or {})),
        (9.0, events.Released(39.0)),
        (39.0, events.LegEnded("deadline", 39.0)),
        *((40.0, check) for check in checks(before if after is None else after)),
    ]


def same(num: int, **others: str | tuple[str, ...]) -> Told:
    """All of `num` ranks have hash "a" but `others`, named r7 and so on."""
    return {**dict.fromkeys(range(1, num + 1), "a"), **{int(name[1:]): d for name, d in others.items()}}


def said(timed: list[Timed]) -> list[str]:
    found = replayed(timed)
    assert found.faults == []
    return device_check_text(found)


def fault(place: int, rank: int) -> list[str]:
    """The fault of one more check, which cannot be at that place of the journal."""
    timed = run({1: "a"})
    (check,) = checks({rank: "a"})
    more = [*timed[:place], (timed[place - 1][0], check), *timed[place:]]
    return [each.text for each in replayed(more).faults]


def test_what_the_checks_say(comes_to_what_was_read: ComesTo) -> None:
    """Only a minority is asked again, and only once; an older run says nothing."""
    comes_to_what_was_read("deviation.txt", {**globals(), "suspects": suspects})


def test_of_several_legs_it_says_which() -> None:
    found = replayed([*run(same(1), after={}), *run(same(1), leg=1)])
    assert agreement(found).unknown == ("no device was checked after the span (leg 0)",)


def test_a_rank_that_was_started_again_on_another_kind_is_not_compared_with_itself() -> None:
    found = replayed(run(same(1), after={1: "b"}))
    found.leg.devices[1] = replace(found.leg.devices[1], software={"driver": "2"})
    why_not = "rank 1 on node1 had another device, or other software, after the span than before it"
    assert agreement(found) == Agreement((), (why_not,))
    assert device_check_text(found) == [f"unknown ({why_not})"]
