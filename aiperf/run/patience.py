"""How long a group may be silent before it is lost: as long as the work takes that it has begun.

A slow device is not a dead one. What a step takes is foreseen from what the ranks did before the span.
"""

from __future__ import annotations

from collections.abc import Iterable

from aiperf.journal.events import Dispatched
from aiperf.wire.messages import Ceiling
from nas.ops import TENSOR_OPS, Ops

SLOWER = 8.0
"""Times slower than the fastest products: a step of a seed that took too long to be measured."""


def step_seconds(job: Dispatched, ceilings: Iterable[Ceiling]) -> float:
    """Of one step of a trial by the slowest of its group's ranks; 0 where none of them was measured."""
    operations = (Ops(*job.forward) + Ops(*job.backward)).price(TENSOR_OPS) * job.trial.hyper.batch_size
    rates = [
        ceiling.seed.typical if ceiling.seed else ceiling.product.fastest / SLOWER for ceiling in ceilings
    ]
    slowest = min(rates, default=0.0)
    return operations / (len(rates) * slowest) if slowest > 0 else 0.0
