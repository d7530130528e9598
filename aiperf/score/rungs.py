"""Controls at a rung that all of them have timed: rates at two sizes of examples are not compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from aiperf.journal.replay import Replay
from aiperf.wire.messages import Control, Rung

Controls = Mapping[int, Control]
"""By rank."""
Kind = tuple[bool | str | int, ...]
"""Of a rung, in the order of the work that it is."""


def controls_of(replay: Replay) -> Controls:
    """Of the first leg that measured them."""
    return next((leg.controls for leg in replay.legs if leg.controls), {})


def at_common_rung(runs: Sequence[Controls]) -> list[Controls] | None:
    """The controls of each run at the largest rung that all ranks of all runs have; None if there is none, or
    a run without controls.

    A rung is a network, a size and a batch. If no whole rung is common, the size is enough: an accelerator
    takes the largest batch that fits.
    """
    if not all(runs):
        return None
    every = list(chain.from_iterable(controls.values() for controls in runs))
    for same in (_work, _size):
        timed = [{same(rung) for rung in control.rungs} for control in every]
        if common := set.intersection(*timed):
            largest = max(common)
            return [
                {rank: _at(control, same, largest) for rank, control in controls.items()} for controls in runs
            ]
    return None


def comparable(controls: Controls) -> Controls:
    """At a rung that all ranks have; as they were measured if there is none."""
    (found,) = at_common_rung([controls]) or [controls]
    return found


def _at(control: Control, same: Callable[[Rung], Kind], rung: Kind) -> Control:
    """With that rung as its own, the largest batch of several; unchanged where it is."""
    *others, own = control.rungs
    if same(own) == rung:
        return control
    found = max((one for one in others if same(one) == rung), key=_work)
    return replace(control, **vars(found), examples_per_second=found.examples_per_second, others=())


def _size(rung: Rung) -> Kind:
    """The task's own network is larger than any that took its place."""
    return not rung.network, rung.network, rung.size


def _work(rung: Rung) -> Kind:
    return *_size(rung), rung.batch_size
