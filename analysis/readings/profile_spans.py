"""The time of a step, each moment once: by the innermost event that lasts, and whether a collective runs.

Events of one thread lie within each other or one after the other, so each moment has an innermost one. Its
phase and its node are those of the ranges around it. In the backward pass no range says the node: there it is
found by torch's sequence number, which an operation of the forward pass gives to its backward pass.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aiperf.wire.profile_records import COLLECTIVES, NODE, PHASE, STEP, Events
from nas.frozen import frozen

NANO = 1e9
"""Nanoseconds of a second."""
BETWEEN = "between phases"
ALL_REDUCE = "all-reduce"
BESIDE = " beside all-reduce"
"""Suffix of a phase's name for time in which a collective ran, too."""
LOSS_NODE, SUMS, NO_NODE = "loss", "sums of gradients", ""
ENGINE = "autograd::engine::evaluate_function: "
SENDING = "c10d::"
"""Prefix of the events that hand a collective over to its thread."""
WAITING = (STEP, PHASE, NODE, SENDING, "DistributedDataParallel.")
"""Prefixes of innermost events that compute nothing: while a collective runs, the step waits for it."""


@frozen
class Span:
    """A stretch of time with one innermost event."""

    nanoseconds: int
    phase: str
    """One of PHASES, or BETWEEN."""
    node: str
    """A node of the graph, LOSS_NODE, SUMS or NO_NODE."""
    operation: str
    """The innermost event."""
    opens: bool
    """Whether the event begins here: an event with others within it has several spans."""
    beside: int
    """Nanoseconds of it in which a collective ran, too."""

    @property
    def waits(self) -> bool:
        """Whether the event computes nothing itself."""
        return self.operation.startswith(WAITING)

    @property
    def rows(self) -> Iterator[tuple[str, int]]:
        """Nanoseconds by row of the table of phases."""
        if self.operation.startswith(SENDING):
            yield ALL_REDUCE, self.nanoseconds
            return
        yield ALL_REDUCE if self.waits else f"{self.phase}{BESIDE}", self.beside
        yield self.phase, self.nanoseconds - self.beside


@dataclass
class _Open:
    """An event that has begun and not ended."""

    name: str
    end: int
    phase: str
    node: str
    counted: bool = False


def spans(events: Events, nodes: Sequence[str]) -> list[Span]:
    """The spans of the whole step, in order. `nodes` are those of the graph, as `events.layers` numbers
    them."""
    order = sorted(range(len(events.name)), key=lambda event: (events.begin[event], -events.end[event]))
    names = [events.names[events.name[event]] for event in order]
    others = [i for i, name in zip(order, names) if name.startswith(COLLECTIVES)]
    busy = _merged(sorted((events.begin[event], events.end[event]) for event in others))
    return list(_spans(events, [i for i, name in zip(order, names) if i not in set(others)], nodes, busy))


def _spans(
    events: Events, order: Sequence[int], nodes: Sequence[str], busy: Sequence[tuple[int, int]]
) -> Iterator[Span]:
    """The spans of these events, whose begins rise. A stack holds the events that have begun and not
    ended."""
    stack: list[_Open] = []
    now, last = 0, NO_NODE

    def until(moment: int) -> Iterator[Span]:
        nonlocal now
        if stack and moment > now:
            top = stack[-1]
            beside = _overlap(busy, now, moment)
            yield Span(moment - now, top.phase, top.node, top.name, not top.counted, beside)
            top.counted = True
        now = max(now, moment)

    for event in order:
        begin, end = events.begin[event], events.end[event]
        while stack and stack[-1].end <= begin:
            yield from until(stack[-1].end)
            stack.pop()
        yield from until(begin)
        name = events.names[events.name[event]]
        around = stack[-1] if stack else _Open("", end, BETWEEN, NO_NODE)
        opened = _Open(name, min(end, around.end), around.phase, around.node)
        if name.startswith(PHASE):
            opened.phase = name.removeprefix(PHASE)
        elif name.startswith(NODE):
            opened.node = name.removeprefix(NODE)
        elif name.startswith(ENGINE):
            # A leaf's gradient is put in its place right after the operation that made it: torch gives it the
            # highest priority of all that is ready (torch/csrc/autograd/function.h, "Sequence Number").
            number = events.sequence[event]
            last = opened.node = last if number < 0 else _node_of(number, events.layers, nodes)
        elif around.name.startswith(ENGINE) and name.startswith("aten::add"):
            opened.node = SUMS  # of the gradients of a tensor with several readers
        stack.append(opened)
    while stack:
        yield from until(stack[-1].end)
        stack.pop()


def _node_of(number: int, layers: Sequence[int], nodes: Sequence[str]) -> str:
    """The node of the operation with this number; operations after the last node belong to the loss."""
    place = bisect_right(layers, number) - 1
    if place < 0:
        return NO_NODE
    return nodes[place] if place < len(nodes) else LOSS_NODE


def _merged(intervals: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Intervals that do not overlap, from ones that begin in order."""
    found: list[tuple[int, int]] = []
    for begin, end in intervals:
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def _overlap(busy: Sequence[tuple[int, int]], begin: int, end: int) -> int:
    """Nanoseconds of [begin, end) in one of the intervals, which are apart and rise."""
    first = bisect_right(busy, (begin, begin))
    total = 0
    for at in range(max(0, first - 1), len(busy)):
        if busy[at][0] >= end:
            break
        total += max(0, min(end, busy[at][1]) - max(begin, busy[at][0]))
    return total
