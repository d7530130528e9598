"""Which devices deviate, and of which nothing is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from aiperf.journal import events
from aiperf.score.deviation import Agreement, agreement, suspects
from aiperf.wire.messages import DeviceCheck, Ready
from analysis.readings.device_checks import device_check_text
from tests.journals import READY, Scene, Timed, replayed, told

OPENED = next(event for _, event in told(Scene(minutes=0.05)) if isinstance(event, events.Opened))

Told = Mapping[int, str | tuple[str, ...]]
"""What ranks computed, by rank; several hashes if laps differ, none if nothing was computed."""


def checks(told: Told) -> Iterable[events.DeviceChecked]:
    for rank, digests in told.items():
        found = (digests,) if isinstance(digests, str) else digests
        why_not = "" if found else NO_KERNEL
        yield events.DeviceChecked(DeviceCheck(rank, found, 2, 1.0, why_not))


def ready(rank: int, caches: str) -> Ready:
    return replace(READY, rank=rank, host=f"node{rank}", settings={"threads": str(rank), "caches": caches})


def run(
    before: Told,
    repeats: Told | None = None,
    after: Told | None = None,
    kinds: Mapping[int, str] | None = None,
) -> list[Timed]:
    """A run whose ranks, from 1 on hosts of their own, said that."""
    ranks, kinds = sorted(before), kinds or {}
    groups = tuple((rank,) for rank in ranks)
    return [
        (0.0, replace(OPENED, rules=2)),
        (0.0, events.LegBegan(0, "2026-01-01T00:00:00.000+00:00", (), groups)),
        *((1.0, events.RankReady(r - 1, ready(r, kinds.get(r, "32K")), 0.0)) for r in ranks),
        *((2.0, check) for check in checks(before)),
        *((3.0, check) for check in checks(repeats or {})),
        (9.0, events.Released(39.0)),
        (39.0, events.LegEnded("deadline", 39.0)),
        *((40.0, check) for check in checks(before if after is None else after)),
    ]


def same(num: int, **others: str | tuple[str, ...]) -> Told:
    """All of `num` ranks have hash "a" but `others`, named r7 and so on."""
    return {**dict.fromkeys(range(1, num + 1), "a"), **{int(name[1:]): d for name, d in others.items()}}


ALL = "{} devices computed the same bits before and after the span, equal to those of equal devices"
TWICE = "rank 2 on node2 (a device) computed other bits than {} equal devices, twice"
ONCE, DEVICES = "rank 2 on node2 deviated once and", "devices (a device)"
NO_KERNEL, REST = "RuntimeError: no kernel", "than the rest"
LATE = "rank 2 on node2 (a device) computed other bits after the span than before it"
NO_EQUAL = "1 device computed the same bits before and after the span; without an equal to compare with"
UNKNOWN = {
    "once only": (run(same(3, r2="b"), {2: "a"}, same(3)), f"{ONCE} did not when it was asked again"),
    "then nothing": (run(same(3, r2="b"), {2: ()}, same(3)), f"{ONCE} then computed nothing: {NO_KERNEL}"),
    "not asked again": (run(same(3, r2="b")), f"{ONCE} was not asked again"),
    "two of three": (run({1: "a", 2: "b", 3: "c"}), f"3 equal {DEVICES} all computed different bits"),
    "two devices": (run(same(2, r2="b")), f"2 equal {DEVICES} all computed different bits"),
    "two of nineteen": (run(same(19, r2="b", r3="b")), f"2 of 19 equal {DEVICES} computed other bits {REST}"),
    "one device whose laps differ": (
        run({1: ("a", "b")}),
        "the only device of its kind (a device) computed different bits in the same work",
    ),
    "nothing computed": (run(same(3, r2=(), r3=())), f"rank 2 on node2 and 1 more: {NO_KERNEL}"),
    "all of two after the span": (
        run(same(2), after={1: "b", 2: "b"}),
        f"2 of 2 {DEVICES} computed other bits after the span than before it",
    ),
    "not checked after the span": (run(same(3), after={}), "no device was checked after the span"),
    "one not checked": (run(same(3), after={1: "a", 3: "a"}), "rank 2 on node2 not checked after the span"),
    "nothing": (run({1: "a"})[:3], "no device was checked"),
}
CASES: Mapping[str, tuple[list[Timed], str]] = {
    "all agree": (run(same(4)), ALL.format(4)),
    "one device": (run(same(1)), NO_EQUAL),
    "two kinds": (run(same(4, r4="b"), kinds={4: "64K"}), f"{ALL.format(4)}; 1 of them without an equal"),
    "one of three": (run(same(3, r2="b"), {2: "b"}), TWICE.format(2)),
    "one of nine, other bits each time": (run(same(9, r2="b"), {2: "c"}, same(9, r2="c")), TWICE.format(8)),
    "one of five whose laps differ": (run(same(5, r2=("a", "b")), {2: ("b", "a")}), TWICE.format(4)),
    "two of twenty": (
        run(same(20, r2="b", r3="c"), {2: "b", 3: "c"}),
        f"{TWICE.format(18)}\n{TWICE.format(18).replace('rank 2 on node2', 'rank 3 on node3')}",
    ),
    "one device after the span": (
        run(same(1), after={1: "b"}),
        LATE.replace("rank 2 on node2", "rank 1 on node1"),
    ),
    "one of two after the span": (run(same(2), after=same(2, r2="b")), LATE),
    "one of nine in one lap after the span": (run(same(9), after=same(9, r2=("a", "b"))), LATE),
    **{name: (timed, f"unknown ({text})") for name, (timed, text) in UNKNOWN.items()},
}


@pytest.mark.parametrize("case", CASES)
def test_what_the_checks_say(case: str) -> None:
    timed, text = CASES[case]
    found = replayed(timed)
    assert found.faults == []
    assert "\n".join(device_check_text(found)) == text


def test_of_several_legs_it_says_which() -> None:
    resumed = [
        (t, replace(event, index=1) if isinstance(event, events.LegBegan) else event)
        for t, event in run(same(1))[1:]
    ]
    found = replayed([*run(same(1), after={}), *resumed])
    assert agreement(found).unknown == ("no device was checked after the span (leg 0)",)


def test_only_a_minority_is_asked_again_and_only_once() -> None:
    assert suspects(replayed(run(same(9, r2="b"), after={})).leg) == [2]
    assert suspects(replayed(run(same(9, r2="b"), {2: "b"}, {})).leg) == []
    assert suspects(replayed(run(same(9, r2="b", r3="b"), after={})).leg) == []


def test_a_rank_that_was_started_again_on_another_kind_is_not_compared_with_itself() -> None:
    found = replayed(run(same(1), after={1: "b"}))
    found.leg.devices[1] = replace(found.leg.devices[1], software={"driver": "2"})
    why_not = "rank 1 on node1 had another device, or other software, after the span than before it"
    assert agreement(found) == Agreement((), (why_not,))
    assert device_check_text(found) == [f"unknown ({why_not})"]


def test_an_older_run_says_nothing() -> None:
    (t, opened), *rest = run(same(3))
    assert isinstance(opened, events.Opened)
    assert device_check_text(replayed([(t, replace(opened, rules=1)), *rest])) == []


@pytest.mark.parametrize(
    ("place", "rank", "text"),
    [
        (3, 7, "of rank 7, which was never ready"),
        (5, 1, "of rank 1 comes within the span"),
        (7, 1, "of rank 1 appears twice after the span"),
    ],
)
def test_a_check_that_cannot_be_there_is_a_fault(place: int, rank: int, text: str) -> None:
    timed = run({1: "a"})
    t = timed[place - 1][0]
    (check,) = checks({rank: "a"})
    found = replayed([*timed[:place], (t, check), *timed[place:]])
    assert [fault.text for fault in found.faults] == [f"DeviceChecked {text}"]
