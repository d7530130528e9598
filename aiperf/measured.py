"""Integrity of what was measured before the span: whose it is, and what it can be."""

from __future__ import annotations

from collections.abc import Iterator
from math import fsum, inf, isclose

import numpy as np

from aiperf.findings import Evidence, Seen
from aiperf.messages import Ceiling, Control, Ready
from aiperf.peak import peak_ops_per_second
from aiperf.pieces import pieces
from aiperf.replay import Replay
from aiperf.story import Leg
from nas.ops import TENSOR_OPS

__all__ = ["mean_ceiling", "measurements"]

# Data sheets give a clock that a device keeps up; for a moment it may run faster.
MOST_OF_THE_PEAK = 1.25
# Something else may have held a device up for the moment in which its ceiling was measured.
MOST_OF_THE_CEILING = 2.0
# The same of one block of steps or one validation, which may fall into a better moment than all together.
MOST_OF_A_PIECE = 2 * MOST_OF_THE_CEILING


def measurements(evidence: Evidence) -> Seen:
    """Ceilings and controls are of the ranks' own devices, in the declared format, and leave room for what
    was done later."""
    replay = evidence.replay
    num = sum(len(leg.ceilings) + len(leg.controls) for leg in replay.legs)
    if not num:
        return Seen("nothing was measured before the span", known=False)
    contradictions = [
        text for leg in replay.legs for text in _of_leg(leg, replay.opened.config.training.format)
    ]
    share = _share(replay, evidence.score.goodput.tensor_operations)
    if share is not None and not share <= MOST_OF_THE_CEILING:
        contradictions.append(f"{share:.1f} times what the devices could do before the span")
    contradictions += _rushed(evidence)
    if share is None and replay.span_seconds > 0:
        return Seen(
            "a ceiling is missing, beside which too much work would show", contradictions, known=False
        )
    return Seen(f"{num} ceilings and controls, each of its rank's device", contradictions)


def _of_leg(leg: Leg, format: str) -> Iterator[str]:
    ready = {event.ready.rank: event.ready for event in reversed(leg.ranks)}  # the first of a rank
    for measured in leg.ceilings.values():
        yield from _of_rank("ceiling", measured, ready.get(measured.rank))
        yield from _of_ceiling(measured, ready.get(measured.rank), format)
    for control in leg.controls.values():
        yield from _of_rank("control", control, ready.get(control.rank))
        images = control.batch_size * control.steps
        if not (
            control.steps > 0
            and control.seconds > 0
            and isclose(images, control.images_per_second * control.seconds, rel_tol=1e-6)
        ):
            yield (
                f"the control of rank {control.rank} is {control.images_per_second:.2f} images/s, "
                f"from {images} images in {control.seconds:.2f} s"
            )


def _of_rank(what: str, measured: Ceiling | Control, ready: Ready | None) -> Iterator[str]:
    if ready is None:
        yield f"the {what} of rank {measured.rank} is of a rank that was not ready"
    elif (measured.host, measured.device) != (ready.host, ready.device):
        yield (
            f"the {what} of rank {measured.rank} is of {measured.device} on {measured.host}; the rank has "
            f"{ready.device} on {ready.host}"
        )


def _of_ceiling(ceiling: Ceiling, ready: Ready | None, format: str) -> Iterator[str]:
    name = f"the ceiling of rank {ceiling.rank}"
    if ceiling.format != format:
        yield f"{name} was measured in {ceiling.format}, and training.format is {format}"
    rates = [ceiling.product, ceiling.copy, ceiling.upload, ceiling.all_reduce]
    if any(rate is not None and not 0 < rate.typical <= rate.fastest for rate in rates):
        yield f"{name}: a fastest window is slower than the typical one"
    peak = ready and peak_ops_per_second(ready.device, format, ready.memory_bytes)
    if peak and not ceiling.product.fastest <= MOST_OF_THE_PEAK * peak:
        yield f"{name} is {ceiling.product.fastest / peak:.2f} times the peak of {ceiling.device}"


def _rushed(evidence: Evidence) -> Iterator[str]:
    """Blocks and validations that no device does in their seconds."""
    replay, found = evidence.replay, pieces(evidence.replay)
    prices, most = np.zeros((2, len(replay.attempts))), np.full(len(replay.attempts), inf)
    for attempt in replay.attempts:
        if (counted := evidence.recount.counts.get(attempt.trial.number)) is not None:
            prices[:, attempt.index] = counted.train.price(TENSOR_OPS), counted.evaluate.price(TENSOR_OPS)
        ranks, ceilings = attempt.leg.began.groups[attempt.group], attempt.leg.ceilings
        if all(rank in ceilings for rank in ranks):
            most[attempt.index] = MOST_OF_A_PIECE * fsum(ceilings[rank].product.fastest for rank in ranks)
    with np.errstate(over="ignore", invalid="ignore"):  # absurd figures, which other rules name
        operations = prices[found.is_validation.astype(np.int64), found.attempt] * found.images
        rushed = operations > most[found.attempt] * found.seconds
    for row in np.flatnonzero(rushed):
        number = replay.attempts[found.attempt[row]].trial.number
        what = "a validation" if found.is_validation[row] else "a block"
        yield f"trial {number}: {what} of {found.seconds[row]:.6f} s is beyond what its devices can do"


def _share(replay: Replay, tensor_operations: int) -> float | None:
    """Of what all devices could have multiplied in the span; None where a leg has not measured all."""
    ceiling = mean_ceiling(replay)
    return tensor_operations / (ceiling * replay.span_seconds) if ceiling else None


def mean_ceiling(replay: Replay) -> float | None:
    """Operations a second of matrix products, of all devices that a leg had, in the mean over the span; None
    where a leg has not measured all of its own, or none has a span."""
    total = 0.0
    for leg in replay.legs:
        ranks = {rank for group in leg.began.groups for rank in group}
        if leg.span_seconds > 0 and ranks != leg.ceilings.keys():
            return None
        total += leg.span_seconds * fsum(ceiling.product.fastest for ceiling in leg.ceilings.values())
    return total / replay.span_seconds if total > 0 else None
