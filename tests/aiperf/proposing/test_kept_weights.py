"""The weights that children may yet read: counted as events come, against all that the run knows."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from aiperf.config import with_overrides
from aiperf.journal.events import Dispatched, GroupLost
from aiperf.wire.trial import State
from tests.aiperf.presets import resolved_preset
from tests.aiperf.proposing.test_jobs import Story

SMALL = with_overrides(resolved_preset("digits"), {"search.population": 3, "training.epochs": [1]})
HALVING = with_overrides(SMALL, {"training.schedule": "halving", "training.epochs": [1, 2, 4]})
STATES = {"complete": State.COMPLETE, "stop": State.STOPPED, "fail": State.FAILED, "memory": State.FAILED}
WHATS = ("dispatch", "dispatch", "complete", "complete", "complete", "stop", "fail", "memory", "lose")


def unneeded(story: Story) -> tuple[set[int], frozenset[int]]:
    """What became so, and what is needed, the best network so far included."""
    best = {story.replay.best.number} if story.replay.best else set()
    return set(story.jobs.unneeded(max(best, default=None))), story.jobs.needed() | best


@settings(max_examples=12)
@given(
    moves=st.lists(
        st.tuples(st.sampled_from(WHATS), st.integers(0, 9), st.booleans()), min_size=40, max_size=80
    ),
    config=st.sampled_from([SMALL, HALVING]),
)
def test_what_is_kept_is_what_is_needed(moves: list[tuple[str, int, bool]], config: object) -> None:
    story = Story(config)  # type: ignore[arg-type]
    jobs, open_ = story.jobs, list[Dispatched]()
    on_disk = set[int]()
    for what, which, look in moves:
        if what == "dispatch" and len(open_) < 6:
            open_.append(story.dispatch())
        elif what == "lose":
            story.tell(GroupLost(0, "killed"))
            open_.clear()
            story.replay.leg.alive[0] = {1}
        elif open_ and what != "dispatch":
            job = open_.pop(which % len(open_))
            story.end(job, STATES[what], (which + 1) / 20, out_of_memory=what == "memory")
        on_disk |= {job.trial.number for job in open_}  # at any time in flight a file may be written
        if look:
            dropped, needed = unneeded(story)
            assert not needed & dropped
            on_disk -= dropped
            assert on_disk <= needed
    dropped, needed = unneeded(story)
    assert on_disk - dropped == on_disk & needed
    parents = {job.trial.parent for job in open_} - {None}
    assert parents <= jobs._completed.keys() <= jobs.needed()
