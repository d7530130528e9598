"""The device check in a run: who is asked, when it is refused, and what it costs after the span."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from pathlib import Path

import pytest

from aiperf.errors import WorldError
from aiperf.run.master import Master
from aiperf.score.deviation import agreement
from aiperf.wire.messages import CheckDevice
from aiperf.wire.reports import DeviceCheck
from tests.aiperf.groups import Doing, FakeWorld, Obedient, lead

TWICE = "rank 3 on node1 (a device) computed other bits than 3 equal devices, twice"
LATE = "rank 3 on node1 (a device) computed other bits after the span than before it"


def computing(*digests: str) -> type[Obedient]:
    """A group that computes these in one check after the other, and the right ones from then on; with "" it
    says nothing."""

    class Computes(Obedient):
        def check_device(self, message: CheckDevice) -> Doing:
            asked = [each for each in self.heard if isinstance(each, CheckDevice)]
            digest = dict(enumerate(digests, 1)).get(len(asked), "b175")
            if not digest:
                yield inf
            self.say(*(DeviceCheck(rank, (digest,), 2, 0.1) for rank in message.ranks or self.ranks))

    return Computes


def world(*digests: str) -> FakeWorld:
    """Four groups, of which the third computes that."""
    return FakeWorld(Obedient, Obedient, computing(*digests), Obedient)


def asked(world: FakeWorld, group: int) -> list[CheckDevice]:
    return [each for each in world.workers[group].heard if isinstance(each, CheckDevice)]


def test_a_device_that_deviates_twice_is_named_and_the_run_refused(tmp_path: Path) -> None:
    groups = world("ba5e", "ba5e")
    with pytest.raises(WorldError) as error:
        lead(tmp_path, groups, max_trials=4)
    assert str(error.value) == (
        f"{TWICE}; leave out that device and have it tested, or use --allow-deviating, which costs the class "
        "ranked"
    )
    assert [len(asked(groups, group)) for group in range(4)] == [1, 1, 2, 1], "only it is asked again"


def test_a_device_may_be_allowed_to_deviate(tmp_path: Path) -> None:
    groups = world("ba5e", "ba5e", "ba5e")
    told = lead(tmp_path, groups, max_trials=4, changes={"allow_deviating": True})
    assert told.tested is not None
    assert groups.said == [TWICE]
    assert [each.text for each in agreement(told).deviations] == [TWICE]


CASES: Mapping[str, tuple[tuple[str, ...], list[str], tuple[str, ...], list[str]]] = {
    "right": ((), [], (), []),
    "once": (("ba5e",), [], ("rank 3 on node1 deviated once and did not when it was asked again",), []),
    "after the span": (("b175", "ba5e"), [LATE], (), [LATE]),
    "silent after the span": (("b175", ""), [], ("rank 3 on node1 not checked after the span",), []),
}
"""What the third group computes; devices that deviate, why others are unknown, what the user hears."""


@pytest.mark.parametrize("case", CASES)
def test_a_run_goes_on_and_its_journal_says_what_was_seen(case: str, tmp_path: Path) -> None:
    digests, deviations, unknown, heard = CASES[case]
    groups = world(*digests)
    told = lead(tmp_path, groups, max_trials=4)
    seen = agreement(told)
    assert told.tested is not None
    assert ([each.text for each in seen.deviations], seen.unknown, groups.said) == (
        deviations,
        unknown,
        heard,
    )
    first, *_, last = asked(groups, 0)
    assert first == last
    assert 0 < first.seconds <= 5


def test_who_has_asked_for_the_end_does_not_wait_for_another_check(tmp_path: Path) -> None:
    groups = world()

    def interrupted(master: Master) -> None:
        released = master.groups.release

        def release() -> None:
            released()
            groups.after(0.05, lambda: master.stop("interrupted"))

        master.groups.release = release  # type: ignore[method-assign]

    told = lead(tmp_path, groups, before=interrupted, max_trials=99)
    assert len(asked(groups, 0)) == 1
    assert agreement(told).unknown == ("no device was checked after the span",)
