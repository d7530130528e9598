"""Controls at a rung that all of them have timed, because rates of different sizes or batches cannot be
compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from aiperf.journal.replay import Replay
from aiperf.wire.reports import Control, Rung

Controls = Mapping[int, Control]
"""Controls by rank."""


def controls_of(replay: Replay) -> Controls:
    """Controls of the first counted leg that measured them."""
    return next((leg.controls for leg in replay.counted_legs if leg.controls), {})


def at_common_rung(runs: Sequence[Controls]) -> list[Controls] | None:
    """The controls of each run at the largest rung that all ranks of all runs have: the same network, size
    and batch. None if there is none, or a run without controls."""
    if not all(runs):
        return None
    timed = [{_order(rung) for rung in control.rungs} for controls in runs for control in controls.values()]
    if not (common := set.intersection(*timed)):
        return None
    largest = max(common)
    return [{rank: _at(largest, control) for rank, control in controls.items()} for controls in runs]


def comparable(controls: Controls) -> Controls:
    """The controls at the largest rung that all ranks have; unchanged if there is none."""
    (found,) = at_common_rung([controls]) or [controls]
    return found


def _order(rung: Rung) -> tuple[bool, str, int, int]:
    """Sort key of a rung: the task's own network comes after any smaller one that replaced it."""
    return not rung.network, rung.network, rung.size, rung.batch_size


def _at(order: tuple[bool, str, int, int], control: Control) -> Control:
    """The control as if the rung of this `_order` were the one that it reports; unchanged if it is."""
    *others, own = control.rungs
    if _order(own) == order:
        return control
    found = next(rung for rung in others if _order(rung) == order)
    return replace(control, **vars(found), examples_per_second=found.examples_per_second, others=())
