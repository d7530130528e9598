"""Where the time went, on a journal whose times were written by hand."""

from __future__ import annotations

import pytest

from aiperf.journal import events
from aiperf.journal.events import Event
from aiperf.journal.file import VERSION
from aiperf.journal.replay import Replay
from aiperf.score.credit import credit
from aiperf.tasks.images.tally import Classified
from aiperf.wire.messages import Finished, Ready, Started
from aiperf.wire.trial import HyperParameters, Segment, State, StepBlock, Trial
from analysis.readings.judgement import Judged
from analysis.readings.occupancy import PARTS, occupancy
from nas.record import graph_to_json
from tests.journals import CIFAR, graph_of, manifest, resized

CONFIG = resized(CIFAR, 100 / 60)
GRAPH = graph_of(CIFAR)


Lines = list[tuple[float, Event]]


def leg(index: int, ready: float, released: float, deadline: float, *groups: int) -> Lines:
    """The first lines of a leg, with groups of one rank."""
    ranks = tuple((1 + group,) for group in groups)
    lines: Lines = [(0.0, events.LegBegan(index, f"2026-05-04T0{8 + index}:00:00+00:00", ("x",), ranks))]
    for group in groups:
        data = manifest(CONFIG)
        found = Ready(1 + group, f"n{group}", 1, "a device", 1, {}, "c" * 64, data, "w", 0.0, 1.0)
        lines.append((ready, events.RankReady(group, found, 0.0)))
    return [*lines, (released, events.Released(deadline))]


def opening() -> Lines:
    """Two groups of a rank; the span is from 10 s to 110 s."""
    opened = events.Opened(VERSION, "by-hand", "0", "c" * 64, CONFIG, graph_to_json(GRAPH))
    return [(0.0, opened), *leg(0, 5.0, 10.0, 110.0, 0, 1)]


def dispatched(t: float, number: int, group: int) -> tuple[float, Event]:
    trial = Trial(number, None, (), HyperParameters(0.1, 100), 1, 2, 7)
    zeros = (1, 0, 0, 0, 0, 0, 0)
    return t, events.Dispatched(trial, 1, group, "g", zeros, zeros, zeros, 10)


def whole(number: int, begin: float, end: float, validated: float, built: float = 0.0) -> Lines:
    """A trial of one segment of ten steps; it took this many seconds to build its network."""
    segment = Segment(number, 1, 0, 10, 1000, end - begin, Classified(100, 50), validated - end)
    return [
        (begin, events.Began(Started(number, 1, "g", built), begin)),
        (end, events.Stepped(StepBlock(number, 1, 0, 10, 1000, end - begin, 1.0), end)),
        (validated, events.Closed(segment, validated)),
        (validated, events.Ended(Finished(number, 1, State.COMPLETE, ""), validated)),
    ]


def folded(lines: Lines) -> Replay:
    replay = Replay()
    for t, event in sorted(lines, key=lambda line: line[0]):
        replay.add(t, event)
    assert replay.faults == []
    return replay


def test_every_second_has_one_place() -> None:
    """Group 0: 5 s idle, 5 s until its network was ready, 60 s trained, 5 s validated, 25 s to the end.
    Group 1: at work at once, 20 s not credited as it was lost before it validated, gone for 80 s."""
    lines = [
        *opening(),
        dispatched(15.0, 0, 0),
        *whole(0, 20.0, 80.0, 85.0, built=5.0),
        dispatched(10.0, 1, 1),
        (10.0, events.Began(Started(1, 1, "g", 0.0), 10.0)),
        (30.0, events.Stepped(StepBlock(1, 1, 0, 10, 1000, 20.0, 1.0), 30.0)),
        (35.0, events.GroupLost(1, "silent")),
        (110.0, events.LegEnded("deadline", 110.0)),
    ]
    replay = folded(lines)
    found = occupancy(replay, credit(replay))
    by_part = [dict(zip(PARTS, row)) for row in found.seconds.tolist()]
    assert by_part[0] == pytest.approx({"train": 60, "validate": 5, "prepare": 5, "wait": 30, "lost": 0})
    assert by_part[1] == pytest.approx({"train": 0, "validate": 0, "prepare": 0, "wait": 0, "lost": 100})
    assert found.shares == pytest.approx(
        {"train": 0.3, "validate": 0.025, "prepare": 0.025, "wait": 0.15, "lost": 0.5}
    )
    assert [(bar.trial, bar.begin, bar.end, bar.state) for bar in found.bars] == [
        (1, 0.0, 20.0, State.LOST),
        (0, 10.0, 75.0, State.COMPLETE),
    ]
    assert found.lost == ((1, 20.0, 100.0),)


def test_a_network_that_is_ready_early_costs_nothing() -> None:
    """Prepared beside the trial before: what the gap holds is waiting."""
    lines = [
        *opening(),
        dispatched(10.0, 0, 0),
        dispatched(11.0, 1, 0),
        *whole(0, 10.0, 50.0, 52.0),
        *whole(1, 55.0, 100.0, 102.0, built=4.0),
        (110.0, events.LegEnded("deadline", 110.0)),
    ]
    replay = folded(lines)
    assert dict(zip(PARTS, occupancy(replay, credit(replay)).seconds[0].tolist())) == pytest.approx(
        {"train": 85, "validate": 4, "prepare": 0, "wait": 11, "lost": 0}
    )


def test_shares_add_up_to_the_span_and_agree_with_the_score(judged: Judged) -> None:
    """The score's shares hold all work, ours only what was credited: the difference is lost work."""
    found = occupancy(judged.replay, judged.credit)
    assert found.seconds.sum(axis=1) == pytest.approx(found.span_of_group, rel=1e-9)
    assert sum(found.shares.values()) == pytest.approx(1.0)
    assert (found.seconds >= -1e-9).all()
    for share in judged.score.shares[:3]:
        train, validate, _, _, lost = found.seconds[share.group] / found.span_of_group[share.group]
        assert train + validate + lost == pytest.approx(share.train + share.validate, abs=1e-9)


def test_a_run_that_has_not_been_released_has_no_time() -> None:
    replay = folded(opening()[:4])
    assert occupancy(replay, credit(replay)).shares == dict.fromkeys(PARTS, 0.0)


def test_a_second_leg_follows_without_a_gap() -> None:
    lines = [*opening(), dispatched(10.0, 0, 0), *whole(0, 10.0, 50.0, 60.0)]
    replay = folded([*lines, (70.0, events.LegEnded("interrupted", 70.0))])
    again = [*leg(1, 1.0, 5.0, 45.0, 0), dispatched(5.0, 1, 0), *whole(1, 5.0, 35.0, 40.0)]
    for t, event in [*again, (45.0, events.LegEnded("deadline", 45.0))]:
        replay.add(t, event)
    found = occupancy(replay, credit(replay))
    assert [(bar.begin, bar.end) for bar in found.bars] == [(0.0, 50.0), (60.0, 95.0)]
    assert found.span_of_group.tolist() == [100.0, 60.0]
