"""Ceilings and controls, each checked by itself and against the rank that measured it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import isclose

from aiperf.hardware.bound import bound_ops_per_second
from aiperf.hardware.peak import listed
from aiperf.journal.attempts import Leg
from aiperf.tasks.task import ControlNetwork
from aiperf.wire.messages import Ceiling, Control, Ready, Rung
from nas.ops import TENSOR_OPS
from nas.products import least_products


def of_leg(leg: Leg, format: str, network: ControlNetwork) -> Iterator[str]:
    """Contradictions in the measurements of a leg, whose controls used this network or the smaller one."""
    ready = leg.first_devices
    for measured in leg.ceilings.values():
        yield from _of_rank("ceiling", measured, ready.get(measured.rank))
        yield from _of_ceiling(measured, ready.get(measured.rank), format)
        yield from _of_threads(measured, ready.get(measured.rank))
    for control in leg.controls.values():
        yield from _of_rank("control", control, ready.get(control.rank))
        name, of_rank = f"the control of rank {control.rank}", ready.get(control.rank)
        for rung in control.rungs:
            yield from _of_rung(name, control.device, rung, of_rank, format, network)
        kinds = [(rung.network, rung.size, rung.batch_size) for rung in control.rungs]
        if len(set(kinds)) < len(kinds):
            yield f"{name} has two rates of the same {network.examples} in the same batch"
        done = control.batch_size * control.steps
        if not isclose(done, control.examples_per_second * control.seconds, rel_tol=1e-6):
            yield (
                f"the control of rank {control.rank} is {control.examples_per_second:.2f} "
                f"{network.examples}/s, but {done} {network.examples} took {control.seconds:.2f} s"
            )


def _of_rung(
    name: str, device: str, rung: Rung, ready: Ready | None, format: str, network: ControlNetwork
) -> Iterator[str]:
    """Checks one rung: the task has this network, the examples have a possible size, and the device can be so
    fast."""
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
    if bound and not rung.examples_per_second * _least_operations(used, rung.size) <= bound:
        yield f"{name} is more than {device} can do"


@cache  # one size, or a few, for all ranks
def _least_operations(network: ControlNetwork, size: int) -> int:
    """Smallest possible number of tensor operations for one training example of the control."""
    return TENSOR_OPS.mac * least_products(network.graph(size))[0]


def _of_rank(what: str, measured: Ceiling | Control, ready: Ready | None) -> Iterator[str]:
    if ready is None:
        yield f"rank {measured.rank} has a {what}, but was never ready"
    elif (measured.host, measured.device) != (ready.host, ready.device):
        yield (
            f"the {what} of rank {measured.rank} is from {measured.device} on {measured.host}; the rank has "
            f"{ready.device} on {ready.host}"
        )


def _of_ceiling(ceiling: Ceiling, ready: Ready | None, format: str) -> Iterator[str]:
    name = f"the ceiling of rank {ceiling.rank}"
    if ceiling.format != format:
        yield f"{name} was measured in {ceiling.format}, but training.format is {format}"
    by_threads = ceiling.thread_products.values()
    rates = [ceiling.product, ceiling.copy, ceiling.upload, ceiling.all_reduce, ceiling.seed, *by_threads]
    if any(rate is not None and not 0 < rate.typical <= rate.fastest for rate in rates):
        yield f"{name}: the fastest rate is below the typical rate"
    if ceiling.side < 0 or any(rate is not None and not rate.spread >= 0 for rate in rates):
        yield f"{name}: a side or a spread is negative"
    times = ceiling.steps.values()
    if not all(min(time.seconds, time.prepare_seconds, time.error) >= 0 for time in times):
        yield f"{name}: a step has a negative duration or error"
    bound = ready and bound_ops_per_second([ready], format)
    fastest = max(ceiling.fastest, *(rate.fastest for rate in ceiling.products.values()))
    if bound and not fastest <= bound:
        yield f"{name} is {fastest / bound:.2f} times the most that {ceiling.device} can do"


def _of_threads(ceiling: Ceiling, ready: Ready | None) -> Iterator[str]:
    """Checks the threads: no more than the CPU has or the user set, the chosen number was timed, and its
    product is the ceiling's."""
    name, threads, timed = f"the ceiling of rank {ceiling.rank}", ceiling.threads, ceiling.thread_seconds
    most = None if ready is None or ready.processor is None else ready.processor.logical
    stated = "" if ready is None else ready.settings.get("threads", "")
    if ready is not None and listed(ready.device) is not None:
        most = 0
    if threads < 0 or (most is not None and threads > most and str(threads) != stated):
        yield f"{name} used {threads} threads, but its device has {most}"
    if not 0 <= ceiling.threads_share <= 1:
        yield f"{name}: {ceiling.threads_share:g} is not a share of measurements"
    if timed and not (
        str(threads) in timed and all(key.isdigit() and took > 0 for key, took in timed.items())
    ):
        yield f"{name}: {threads} threads do not follow from the times of {', '.join(timed):.60}"
    products = ceiling.thread_products
    if products and not (products.keys() <= timed.keys() and products.get(str(threads)) == ceiling.product):
        yield f"{name}: the products with {', '.join(products):.60} threads do not fit those with {threads}"
