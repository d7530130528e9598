"""What is impossible of controls, by themselves and coupled, and what other measurements contradict."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import fsum

from aiperf.hardware.bound import bound_ops_per_second
from aiperf.journal.attempts import Leg
from aiperf.journal.replay import Replay
from aiperf.score.fabric import (
    LEAST_TELLING,
    coupled_per_second,
    coupled_share,
    gradient_bytes,
    largest_sum,
    reduce_seconds,
)
from aiperf.tasks.task import ControlNetwork
from aiperf.wire.reports import Ready, Rung
from nas.ops import TENSOR_OPS
from nas.products import least_products

# One block of steps, or one validation, may run at a much better moment than the measurement did.
MOST_OF_A_PIECE = 4.0
MOST_COUPLED = 1.25
"""Coupled share above which something else slowed down the devices while each trained by itself. The
gradients of coupled steps are sent in addition, so an honest share is at most about 1."""


def fast_controls(replay: Replay, network: ControlNetwork) -> Iterator[int]:
    """Ranks whose control did more work than the fastest of all measurements on their device, such as one of
    small images that is said to be of large ones."""
    for leg in replay.timed_legs:
        for rank in leg.controls.keys() & leg.ceilings.keys():
            done = max(_control_rate(network, rung) for rung in leg.controls[rank].rungs)
            if done > leg.ceilings[rank].fastest:
                yield rank


def _control_rate(network: ControlNetwork, rung: Rung) -> float:
    """Smallest possible number of tensor operations per second of one rung; 0 for an impossible size, which
    `rung_faults` reports."""
    used = network.named(rung.network)
    least = _least_control_operations(used, rung.size) if rung.size in used.sizes else 0
    return rung.examples_per_second * least


def coupled_faults(leg: Leg, format: str, network: ControlNetwork) -> Iterator[str]:
    """Checks the coupled control: the network, the size, and that all devices together can be so fast."""
    fabric = leg.fabric
    coupled = fabric.coupled if fabric is not None else None
    rate = coupled_per_second(fabric) if fabric is not None else None
    if coupled is None or rate is None:
        return
    used, name = network.named(coupled.network), "the coupled control"
    # `named` answers with the network itself for a name that the task does not have.
    if (coupled.network and used is network) or coupled.size not in used.sizes:
        yield f"{name} used {coupled.network!r:.60} at {coupled.size}, which the task does not have"
        return
    bound = bound_ops_per_second(leg.first_devices.values(), format)
    # The same steps uncoupled are of the same devices, so they must be possible as well.
    fastest = max(rate, coupled.uncoupled_per_second) * _least_control_operations(used, coupled.size)
    if bound and fastest > bound:
        yield f"{name} is {fastest / bound:.2f} times the most that all devices can do"


def coupled_doubt(leg: Leg, network: ControlNetwork) -> str:
    """What other measurements of the leg contradict in a coupled control that is known; empty if nothing. A
    doubt makes the coupled control unknown, and is no contradiction. The fabric and its coupled control must
    be known."""
    fabric = leg.fabric
    assert fabric is not None
    coupled, share = fabric.coupled, coupled_share(fabric)
    assert coupled is not None
    assert share is not None
    if share > MOST_COUPLED:
        return f"the devices are {share:.2f} times as fast together as by themselves: run again on idle ones"
    kind = coupled.network, coupled.size, coupled.batch_size
    rungs = [rung for control in leg.controls.values() for rung in control.rungs]
    alone = [each for each in rungs if (each.network, each.size, each.batch_size) == kind]
    # Controls climb to different sizes on unlike devices; a sum can be compared only if all have this one.
    if len(alone) == fabric.ranks:
        times = fsum(rung.examples_per_second for rung in alone) / coupled.uncoupled_per_second
        if not 1 / MOST_OF_A_PIECE <= times <= MOST_OF_A_PIECE:
            return f"the control is {times:.2f} times as fast as the same steps next to the coupled ones"
    largest, used = largest_sum(fabric), network.named(coupled.network)
    needed = reduce_seconds(fabric, gradient_bytes(used))
    if largest is not None and largest.bytes >= LEAST_TELLING and needed is not None:
        # At the rate of the all-reduces, the gradients alone would take so many times the whole of the steps.
        times = needed * coupled.steps / coupled.seconds
        if times > MOST_OF_A_PIECE:
            return f"the coupled control sent its gradients {times:.1f} times as fast as the all-reduces"
    return ""


def rung_faults(
    name: str, device: str, rung: Rung, ready: Ready | None, format: str, network: ControlNetwork
) -> Iterator[str]:
    """Checks one rung: the task has this network, the examples have a possible size, and the device can be so
    fast. `ready` is what the rank stated of its device; None if it was never ready."""
    used = network.named(rung.network)
    if rung.network and used is network:
        yield f"{name} used the network {rung.network!r:.60}, which the task does not have"
        return
    examples = used.examples_text.format(rung.size)
    if rung.size not in used.sizes:
        yield f"{name} used {examples}; possible sizes are {', '.join(map(str, used.sizes))}"
        return
    if not min(rung.batch_size, rung.steps, rung.seconds) > 0:
        yield f"{name}: {rung.steps} steps of {rung.batch_size} {examples} took {rung.seconds:.2f} s"
        return
    bound = ready and bound_ops_per_second([ready], format)
    if bound and not rung.examples_per_second * _least_control_operations(used, rung.size) <= bound:
        yield f"{name} is more than {device} can do"


@cache  # one size, or a few, for all ranks
def _least_control_operations(network: ControlNetwork, size: int) -> int:
    """Smallest possible number of tensor operations for one training example of the control. These are the
    products without which no library computes the network (`nas.products`)."""
    return TENSOR_OPS.mac * least_products(network.graph(size))[0]
