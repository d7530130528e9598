"""How the ranks of a group hear what their leader decided: four whole numbers before each work.

The leader's conduct looks at a clock, and two clocks would decide differently. The numbers go through the sum
over the group that every backend has; the other ranks add zeros.
"""

from __future__ import annotations

from aiperf.conduct.actions import Begin, Close, GiveUp, Keep, OfTrial, Train, Validate
from aiperf.config import ENGINES
from aiperf.parallel.parallel import Parallel
from aiperf.wire.messages import Assign
from aiperf.wire.trial import State

KINDS = (GiveUp, Begin, Train, Validate, Keep, Close)
"""Kinds of work by the number that is sent; the same on all ranks, whose code is compared before the span."""
STATES = tuple(State)
NO_END = -1
"""Stands for the end of a trial that is not known yet."""


def distribute(parallel: Parallel, action: OfTrial) -> OfTrial:
    """Sends the leader's decision to the other ranks of its group. The leader calls it. A collective of one
    sum, which `follow` matches on every other rank. A rank alone sends nothing."""
    if parallel.ranks > 1:
        parallel.total(KINDS.index(type(action)), *_numbers(action))
    return action


def follow(parallel: Parallel, assign: Assign) -> OfTrial:
    """The leader's decision about this trial, without its reasons. Every other rank calls it. It waits for
    the leader. Raises what the group's sum raises if a rank is gone."""
    kind, segment, first, second = parallel.total(0, 0, 0, 0)
    return _action(KINDS[kind], segment, first, second, assign)


def _numbers(action: OfTrial) -> tuple[int, int, int]:
    """The segment of an action, and what else it says. Three numbers are enough for every kind; unused ones
    are 0."""
    if isinstance(action, Begin):
        return 0, ENGINES.index(action.engine), 0
    if isinstance(action, Train):
        return action.segment, action.steps, NO_END if action.end is None else action.end
    if isinstance(action, Close):
        return action.kept, STATES.index(action.state), 0
    return (0 if isinstance(action, GiveUp) else action.segment), 0, 0


def _action(kind: type[OfTrial], segment: int, first: int, second: int, assign: Assign) -> OfTrial:
    """The action of these numbers, without its reasons, which only the leader reports."""
    if kind is Begin:
        return Begin(assign, ENGINES[first], "")
    if kind is Train:
        return Train(segment, first, None if second == NO_END else second)
    if kind is Close:
        return Close(assign.trial.number, assign.attempt, STATES[first], "", segment)
    return GiveUp(assign) if kind is GiveUp else Validate(segment) if kind is Validate else Keep(segment)
