"""What the conduct asks of its driver.

`Say`, `Prepare` and `Observe` are carried out at once and beside the work. All others are the work itself:
one after the other, and the driver answers each with the event that its docstring names.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from aiperf.wire.messages import (
    Assign,
    CheckDevice,
    Evaluate,
    MeasureCeiling,
    MeasureControl,
    Observe,
    Quit,
    Release,
)
from aiperf.wire.reports import FromGroup
from aiperf.wire.trial import State
from nas.frozen import frozen


@frozen
class Say:
    """Send this message to the master."""

    message: FromGroup
    since: float | None = None
    """The time on the driver's clock that the message tells of; None for a message without an age."""

    def aged(self, now: float) -> FromGroup:
        """The message as it is sent at this time: its age is how long it waited."""
        if self.since is None:
            return self.message
        message: Any = self.message
        aged: FromGroup = replace(message, age_seconds=max(0.0, now - self.since))
        return aged


@frozen
class Prepare:
    """Build this trial beside the one that runs, after those asked for before; answered by `Prepared`."""

    assign: Assign


@frozen
class GiveUp:
    """Give up a trial that will never begin; there is no answer."""

    assign: Assign


@frozen
class Begin:
    """Take up a prepared trial on all ranks; answered by `Begun` or `Failed`."""

    assign: Assign
    engine: str
    """Name of the engine that is to make the steps."""
    reason: str
    """Why this engine."""


@frozen
class Train:
    """Make this many steps of a segment; answered by `BlockDone` or `Failed`."""

    segment: int
    steps: int
    end: int | None
    """The step at which the trial will end as far as its deadline is known, for the learning rate."""


@frozen
class Validate:
    """Evaluate the network on the validation examples; answered by `ValidationDone` or `Failed`."""

    segment: int


@frozen
class Keep:
    """Remember the network and the optimizer's state as they are now; there is no answer."""

    segment: int


@frozen
class Close:
    """Free what the trial used, and write what was kept beside the next trial; answer: `WeightsWritten`."""

    trial: int
    attempt: int
    state: State
    reason: str
    """Why the trial ended before its plan did; empty if it did not."""
    kept: int
    """The segment whose network was kept, or NOTHING_KEPT."""


OfTrial = GiveUp | Begin | Train | Validate | Keep | Close
"""Work of all ranks of a group, which the leader decides."""
Work = OfTrial | MeasureCeiling | MeasureControl | CheckDevice | Evaluate | Release | Quit
"""A measurement, a check and an evaluation are answered by `Answered`. `Release` carries a number of threads
for those that compute, which only their own thread can set. `Quit` is the last."""
Action = Work | Say | Prepare | Observe
