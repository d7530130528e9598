"""What all ranks share is written once, and every rank is read as it described itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from aiperf.journal.compression import FIELDS, shortest_line
from aiperf.journal.events import Event, GroupLost, LegBegan, RankAlike, RankReady
from aiperf.journal.file import chained
from aiperf.journal.replay import Replay
from aiperf.journal.strict import parsed
from aiperf.wire.clocks import ClockReading
from aiperf.wire.reports import Processor, Ready
from nas.record import decode
from tests.journals import Scene, told
from tests.tables import ComesTo

FIRST = next(event.ready for _, event in told(Scene(minutes=0.05)) if isinstance(event, RankReady))
GROUPS = ((1, 2), (3,), (4,))

NAMES = st.sampled_from(["a", "b", "c"])
TEXTS = st.dictionaries(NAMES, NAMES, max_size=3)
ANYTHING = st.sampled_from([0, 0.0, -0.0, 1, 1.0, True, False, None, "1", [1], [True], {"x": 1}, {"x": 1.0}])
READY = st.builds(
    Ready,
    rank=st.just(0),
    host=NAMES,
    pid=st.integers(1, 3),
    device=NAMES,
    memory_bytes=st.integers(0, 1),
    software=TEXTS,
    code_hash=NAMES,
    data=st.dictionaries(NAMES, ANYTHING, max_size=3),
    initial_weights=NAMES,
    wall_seconds=st.floats(-1e150, 1e150),
    seconds=st.sampled_from([0.0, -0.0, 1.0]),
    formats=st.dictionaries(NAMES, st.sampled_from([0.0, -0.0, 2.5]), max_size=3),
    sees_run=st.booleans(),
    processor=st.none() | st.builds(Processor, NAMES, st.integers(1, 2), st.just(1.0), st.just(("avx",))),
    settings=TEXTS,
)


def begun() -> Replay:
    run = Replay()
    run.add(0.0, LegBegan(0, "", (), GROUPS))
    return run


def reread(event: Event) -> Event:
    (line,) = chained([(1.0, event)])
    record = parsed(line.encode())
    del record["t"], record["chain"]
    return decode(Event, record)


@given(st.lists(READY, min_size=4, max_size=4), st.lists(st.booleans(), min_size=4, max_size=4))
@settings(max_examples=50)
def test_each_rank_is_read_as_it_was_told(each: list[Ready], lost: list[bool]) -> None:
    run, read = begun(), begun()
    for rank, (ready, dies) in enumerate(zip(each, lost), start=1):
        group = next(index for index, ranks in enumerate(GROUPS) if rank in ranks)
        for one in [replace(ready, rank=rank)] * (1 + dies):
            event = shortest_line(run.leg.ready_like(one.host), group, one, ClockReading(0.25, 0.0625))
            assert isinstance(event, RankReady) == (not run.leg.ranks)
            for place, added in ((run, event), (read, reread(event))):
                place.add(1.0, added)
                assert place.faults == []
                assert repr(_by_key(place.leg.devices[rank])) == repr(_by_key(one))
                if dies:
                    place.add(1.0, GroupLost(group, "it died"))
    assert [event.ready for event in read.ranks] == [event.ready for event in run.ranks]
    assert {event.clock for event in read.ranks} == {ClockReading(0.25, 0.0625)}


def _by_key(ready: Ready) -> dict[str, Any]:
    """The order of a mapping says nothing."""
    values = ((name, getattr(ready, name)) for name in FIELDS)
    return {name: sorted(each.items()) if isinstance(each, dict) else each for name, each in values}


def test_what_ranks_share_is_held_once_and_written_once() -> None:
    run = begun()
    run.add(1.0, RankReady(0, replace(FIRST, rank=1), 0.0))
    second = replace(FIRST, rank=2, pid=7, settings={**FIRST.settings, "threads": "64"})
    event = shortest_line(run.leg.ready_like(second.host), 0, second, ClockReading(0.5, 0.125))
    assert event == RankAlike(0, 1, {"rank": 2, "pid": 7}, {"settings": {"threads": "64"}}, 0.5, 0.125)
    run.add(1.0, reread(event))
    one, two = (event.ready for event in run.ranks)
    assert two == second
    assert two.data is one.data
    assert two.software is one.software
    run.add(1.0, RankReady(1, replace(FIRST, rank=3, host="there"), 0.0))
    assert run.leg.ready_like("there") == run.leg.devices[3]
    assert run.leg.ready_like("else") == run.leg.devices[1]
    run.add(0.0, LegBegan(1, "", (), GROUPS))
    run.add(1.0, ALIKE)
    assert run.faults[0].text == "RankAlike is like rank 1, which was not ready in this leg"


ALIKE = RankAlike(0, 1, {"rank": 2}, {}, 0.0)


def fault(**fields: object) -> str:
    """What is wrong with a line of a rank that is said to be like rank 1; it makes no rank."""
    run = begun()
    run.add(1.0, RankReady(0, replace(FIRST, rank=1), 0.0))
    run.add(2.0, replace(ALIKE, **fields))  # type: ignore[arg-type]
    assert list(run.leg.devices) == [1]
    (found,) = run.faults
    return found.text.partition("; known")[0]


def test_what_it_cannot_be_is_a_fault_and_makes_no_rank(comes_to_what_was_read: ComesTo) -> None:
    comes_to_what_was_read("alike.txt", globals())
