"""The device check in a run: who is asked, when it is refused, and what it costs after the span."""

from __future__ import annotations

from itertools import count
from math import inf
from pathlib import Path

import pytest

from aiperf.errors import WorldError
from aiperf.run.master import Master
from aiperf.score.deviation import agreement
from aiperf.wire.messages import CheckDevice
from aiperf.wire.reports import DeviceCheck
from tests.aiperf.groups import Doing, FakeWorld, Obedient, lead
from tests.tables import ComesTo


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
        "rank 3 on node1 (a device) computed other bits than 3 equal devices, twice; leave out that device "
        "and have it tested, or use --allow-deviating, which costs the class ranked"
    )
    assert [len(asked(groups, group)) for group in range(4)] == [1, 1, 2, 1], "only it is asked again"


def test_a_run_goes_on_and_its_journal_says_what_was_seen(
    tmp_path: Path, comes_to_what_was_read: ComesTo
) -> None:
    folders = (tmp_path / f"{number}" for number in count())

    def third(*digests: str, **changes: bool) -> tuple[list[str], tuple[str, ...], list[str]]:
        """If it computes these: devices that deviate, why others are unknown, what the user hears."""
        told = lead(next(folders), groups := world(*digests), max_trials=4, changes=changes)
        assert told.tested is not None
        first, *_, last = asked(groups, 0)
        assert first == last
        assert 0 < first.seconds <= 5
        seen = agreement(told)
        return [each.text for each in seen.deviations], seen.unknown, groups.said

    comes_to_what_was_read("device_checks.txt", {"third": third})


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
