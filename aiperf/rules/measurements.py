"""Integrity of what was measured before the span, and of how fast the work in the span was.

There are two limits. No work can exceed the bound of its devices: such a run is INVALID. The measured
ceiling lies below the bound, and may have been measured at a bad moment: if work exceeds it, the rule is
"unknown" and the run is not ranked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import cache, cached_property
from math import fsum, inf, isclose

import numpy as np
from numpy.typing import NDArray

from aiperf.errors import JournalError
from aiperf.hardware.bound import (
    ELEMENT_WISE,
    bound_of_group,
    bound_ops_per_second,
    no_bound_text,
    without_bound,
)
from aiperf.hardware.peak import listed
from aiperf.journal.attempts import Leg
from aiperf.journal.replay import Replay
from aiperf.rules.controls import MOST_OF_A_PIECE, coupled_faults, fast_controls, rung_faults
from aiperf.rules.rule import Evidence, Inspection, inspection_of, unknown
from aiperf.score.credit import credit
from aiperf.score.lineage import rebuilt
from aiperf.tasks.task import ControlNetwork
from aiperf.wire.reports import Ceiling, Control, Ready
from aiperf.wording import counted, percent
from nas.frozen import frozen
from nas.ops import TENSOR_OPS, Ops
from nas.products import element_operations, least_elements, least_products

KERNELS_SINCE = 2
"""Version of the rules since which layers that are counted in vain cost the class."""


def measurements(evidence: Evidence) -> Inspection:
    """Ceilings and controls are from the ranks' own devices, in the declared format, and not below the rate
    of the span."""
    replay = evidence.replay
    legs = replay.timed_legs or replay.legs
    num = sum(len(leg.ceilings) + len(leg.controls) for leg in legs)
    if not num:
        return unknown("nothing was measured before the span")
    format, network = evidence.config.training.format, evidence.task.control
    contradictions = [text for leg in legs for text in measurement_faults(leg, format, network)]
    if mean_ceiling(replay) is None and replay.span_seconds > 0:
        return unknown("a ceiling is missing, so impossible work might not be noticed", contradictions)
    if found := doubts(evidence):
        return unknown("; ".join(found), contradictions)
    return Inspection(f"{num} ceilings and controls, each from its rank's device", contradictions)


def speed(evidence: Evidence) -> Inspection:
    """No device computes faster than it can: all together over the span, and in each piece of work. Products
    and element-wise work may overlap, so each of them alone must fit into the time."""
    replay = evidence.replay
    format, least = evidence.config.training.format, _LeastWork(replay)
    products = _BoundedWork("work", format, _tensor_operations, least.products)
    elements = _BoundedWork("element-wise work", ELEMENT_WISE, element_operations, least.elements)
    contradictions = [text for kind in (products, elements) for text in _pieces_too_fast(evidence, kind)]
    if not len(replay.blocks):
        return unknown("no training step was run", contradictions)
    share, of_elements = (_share_of_bound(evidence, kind) for kind in (products, elements))
    text = f"{percent(share, 1)} of the most that the devices can do"
    if share > 1:
        contradictions.append(text)
    if of_elements > 1:
        contradictions.append(
            f"{percent(of_elements, 1)} of the most {elements.name} that the devices can do"
        )
    ranks = [ready for leg in replay.timed_legs for ready in leg.first_devices.values()]
    if names := without_bound(ranks, format):
        return unknown(no_bound_text(names, format), contradictions)
    if replay.opened.rules >= KERNELS_SINCE and (in_vain := evidence.recount.in_vain):
        number, layer = min(in_vain.items())
        text = f"trial {number}: {layer}; nobody computes most of what is counted of it"
        return unknown(text, contradictions)
    return Inspection(text, contradictions)


def ranked_speed(evidence: Evidence) -> Inspection:
    """The work in the span stays below the ceilings."""
    compared = len(evidence.replay.blocks) and mean_ceiling(evidence.replay) is not None
    text = "within the ceilings measured before the span"
    return inspection_of(compared, "there is no work to compare with a ceiling", text, doubts(evidence))


def doubts(evidence: Evidence) -> list[str]:
    """What exceeds the ceilings, but is not impossible: sentences, with the remedy last. They cost a run its
    class, and never make it INVALID: a ceiling may have met a bad moment."""
    replay, found = evidence.replay, []
    ceiling = mean_ceiling(replay)
    if ceiling is not None and (share := evidence.score.tensor_ops_per_second / ceiling) > 1:
        found.append(f"the rate is {share:.1f} times the ceilings measured before the span")
    if num := len(_rows_beyond(evidence, [_most_of_a_piece(leg) for leg in replay.legs])):
        found.append(
            f"{counted(num, 'piece')} of work exceeded {MOST_OF_A_PIECE:g} times the ceilings of the devices"
        )
    if fast := list(fast_controls(replay, evidence.task.control)):
        found.append(f"the control of {counted(len(fast), 'rank')} was faster than the ceiling of its device")
    if found:
        found.append(
            "something else used the devices while they were measured, or the journal was changed: run again "
            "on idle devices"
        )
    return found


Most = Callable[[tuple[int, ...]], float]
"""The most operations per second that the ranks of a group can do; infinite if that is not known."""


@frozen
class _BoundedWork:
    """A kind of work, which has its own bound."""

    name: str
    format: str
    """The format of the multiplications, or ELEMENT_WISE."""
    counted: Callable[[Ops], int]
    least: Callable[[int], tuple[float, float]]
    """The fewest operations of one example in a trial, in training and in validation."""

    def bounds(self, replay: Replay) -> list[Most]:
        """The bound for each leg."""
        return [_bound_by_ranks(leg.first_devices, self.format) for leg in replay.legs]


class _LeastWork:
    """The operations of each trial without which one example cannot be computed. All graphs are rebuilt, in
    one pass, once a piece of work exceeds its bound by what is counted."""

    def __init__(self, replay: Replay) -> None:
        """Nothing is rebuilt before the first question."""
        self._replay = replay

    def products(self, number: int) -> tuple[float, float]:
        """Operations of the products that cannot be avoided, of one example: in training, in validation."""
        train, evaluate = self._of_trials[0].get(number, (0, 0))
        return TENSOR_OPS.mac * train, TENSOR_OPS.mac * evaluate

    def elements(self, number: int) -> tuple[float, float]:
        """The same of element-wise operations."""
        return self._of_trials[1].get(number, (0, 0))

    @cached_property
    def _of_trials(self) -> tuple[dict[int, tuple[int, int]], dict[int, tuple[int, int]]]:
        """Both for each trial that can be rebuilt, in MACs and in operations."""
        products, elements = dict[int, tuple[int, int]](), dict[int, tuple[int, int]]()
        with suppress(JournalError):  # the rule "operations" reports it
            for entry in rebuilt(self._replay):
                if entry.graph is not None:
                    products[entry.trial.number] = least_products(entry.graph)
                    elements[entry.trial.number] = least_elements(entry.graph)
        return products, elements


def _bound_by_ranks(ready: Mapping[int, Ready], format: str) -> Most:
    """The bound of the devices of some ranks, in operations per second; infinite if one of them has no known
    bound."""

    @cache  # many attempts have the same ranks
    def most(ranks: tuple[int, ...]) -> float:
        known = [ready[rank] for rank in ranks if rank in ready]
        return (bound_of_group(known, format) if len(known) == len(ranks) else None) or inf

    return most


def _most_of_a_piece(leg: Leg) -> Most:
    """The most that one piece of work may reach by the ceilings: MOST_OF_A_PIECE times their sum."""
    rates = _ceilings_of(leg)
    return lambda ranks: fsum(MOST_OF_A_PIECE * rates.get(rank, inf) for rank in ranks)


def _pieces_too_fast(evidence: Evidence, kind: _BoundedWork) -> Iterator[str]:
    """Blocks, validations and the test whose work cannot be done in their seconds. Those that exceed the
    limit by all counted operations are checked again by those that cannot be avoided."""
    replay, found, most = evidence.replay, evidence.replay.pieces(), kind.bounds(evidence.replay)
    rows = _rows_beyond(evidence, most, kind.counted)
    # Python's numbers, which overflow without a warning.
    columns = (each[rows].tolist() for each in (found.attempt, found.segment, found.examples, found.seconds))
    for row, index, segment, examples, seconds in zip(rows, *columns):
        attempt, validation = replay.attempts[index], bool(row >= found.num_blocks)
        number = attempt.trial.number
        operations, limit = kind.least(number)[validation] * examples, most[attempt.leg.index](attempt.ranks)
        if operations > limit * seconds and examples >= len(attempt.ranks):  # else some ranks have none
            what = "a validation" if validation else "a block"
            which = f"trial {number}, segment {segment}: {what} of {seconds:.6f} s"
            yield f"{which} did more {kind.name} than its devices can do"
    tested = replay.tested
    if tested is None or (costs := evidence.recount.counts.get(tested.trial)) is None:
        return
    # Some group of the last leg made it.
    limit = tested.seconds * max(most[replay.leg.index](ranks) for ranks in replay.leg.began.groups)
    operations = kind.counted(costs.evaluate) * tested.tally.of
    if operations > limit and kind.least(tested.trial)[True] * tested.tally.of > limit:
        yield f"the test of {tested.seconds:.6f} s did more {kind.name} than any group's devices can do"


def _tensor_operations(ops: Ops) -> int:
    """Operations of the products, which are MACs; the rest is element-wise."""
    return TENSOR_OPS.mac * ops.mac


def _rows_beyond(
    evidence: Evidence, most: Sequence[Most], counted: Callable[[Ops], int] = _tensor_operations
) -> NDArray[np.int64]:
    """Rows of `pieces` whose counted operations exceed the most that their ranks can do, leg by leg."""
    replay, found = evidence.replay, evidence.replay.pieces()
    numbers, limits = np.zeros((2, len(replay.attempts))), np.full(len(replay.attempts), inf)
    for attempt in replay.attempts:
        if (costs := evidence.recount.counts.get(attempt.trial.number)) is not None:
            train = counted(costs.forward) + counted(costs.backward)
            numbers[:, attempt.index] = train, counted(costs.evaluate)
        limits[attempt.index] = most[attempt.leg.index](attempt.ranks)
    with np.errstate(over="ignore", invalid="ignore"):  # absurd figures, which other rules report
        operations = numbers[found.is_validation.astype(np.int64), found.attempt] * found.examples
        rows: NDArray[np.int64] = np.flatnonzero(operations > limits[found.attempt] * found.seconds)
    return rows


def _share_of_bound(evidence: Evidence, kind: _BoundedWork) -> float:
    """The work of the goodput, as a part of the most that the groups that have a bound can do in the span."""
    replay, most = evidence.replay, kind.bounds(evidence.replay)
    available = fsum(
        leg.span_seconds * _leg_bound(leg, kind.format, most[leg.index]) for leg in replay.timed_legs
    )
    return _least_operations(evidence, kind, most, available) / available if available > 0 else 0.0


def _least_operations(evidence: Evidence, kind: _BoundedWork, most: Sequence[Most], enough: float) -> float:
    """Operations without which the goodput of the groups that have a bound cannot have been made; all counted
    ones, which are more, if they are at most `enough`."""
    operations = kind.counted(evidence.score.goodput.kinds)
    if operations <= enough:
        return operations
    replay, credited = evidence.replay, credit(evidence.replay)
    return fsum(
        least * examples
        for attempt in replay.attempts
        if most[attempt.leg.index](attempt.ranks) < inf
        for v in attempt.validations
        if credited.has(attempt, v)
        for least, examples in zip(kind.least(attempt.trial.number), (v.segment.train_examples, v.segment.of))
    )


def _leg_bound(leg: Leg, format: str, most: Most) -> float:
    """Bound in operations per second for all groups of a leg that have one. Hosts whose CPU several groups
    share count once."""
    ready = leg.first_devices
    groups = [group for group in leg.began.groups if most(group) < inf]
    whole = [group for group in groups if not without_bound([ready[rank] for rank in group], format)]
    together = bound_ops_per_second([ready[rank] for group in whole for rank in group], format)
    return (together or 0.0) + fsum(most(group) for group in groups if group not in whole)


def mean_ceiling(replay: Replay) -> float | None:
    """Operations per second of the fastest work of all devices of a leg, averaged over the span; None if a
    leg has not measured all its devices, or none has a span."""
    total = 0.0
    for leg in replay.counted_legs:
        if set(leg.began.ranks) != leg.ceilings.keys():
            return None
        total += leg.span_seconds * fsum(_ceilings_of(leg).values())
    return total / replay.span_seconds if total > 0 else None


def _ceilings_of(leg: Leg) -> Mapping[int, float]:
    """Operations per second of the fastest work of each rank, with any number of threads that it used."""
    return {rank: each.fastest_with(leg.threads.get(rank, ())) for rank, each in leg.ceilings.items()}


def measurement_faults(leg: Leg, format: str, network: ControlNetwork) -> Iterator[str]:
    """Contradictions in the measurements of a leg, whose controls used this network or the smaller one."""
    for rank, ceiling in leg.ceilings.items():
        ready = leg.first_devices.get(rank)
        yield from _rank_faults("ceiling", ceiling, ready)
        yield from _ceiling_faults(ceiling, ready, format)
        yield from _thread_faults(ceiling, ready, leg.threads.get(rank, set()))
    yield from coupled_faults(leg, format, network)
    for rank, control in leg.controls.items():
        name, ready = f"the control of rank {rank}", leg.first_devices.get(rank)
        yield from _rank_faults("control", control, ready)
        for rung in control.rungs:
            yield from rung_faults(name, control.device, rung, ready, format, network)
        kinds = [(rung.network, rung.size, rung.batch_size) for rung in control.rungs]
        if len(set(kinds)) < len(kinds):
            yield f"{name} has two rates of the same {network.examples} in the same batch"
        done = control.batch_size * control.steps
        if not isclose(done, control.examples_per_second * control.seconds, rel_tol=1e-6):
            yield (
                f"{name} is {control.examples_per_second:.2f} {network.examples}/s, but {done} "
                f"{network.examples} took {control.seconds:.2f} s"
            )


def _rank_faults(what: str, measured: Ceiling | Control, ready: Ready | None) -> Iterator[str]:
    """A measurement is of a rank that was ready, and of that rank's own device."""
    if ready is None:
        yield f"rank {measured.rank} has a {what}, but was never ready"
    elif (measured.host, measured.device) != (ready.host, ready.device):
        yield (
            f"the {what} of rank {measured.rank} is from {measured.device} on {measured.host}; the rank has "
            f"{ready.device} on {ready.host}"
        )


def _ceiling_faults(ceiling: Ceiling, ready: Ready | None, format: str) -> Iterator[str]:
    """The rates of a ceiling fit each other, the declared format and the bound of the device."""
    name = f"the ceiling of rank {ceiling.rank}"
    if ceiling.format != format:
        yield f"{name} was measured in {ceiling.format}, but training.format is {format}"
    by_threads = ceiling.thread_products.values()
    rates = [ceiling.product, ceiling.copy, ceiling.upload, ceiling.all_reduce, ceiling.seed, *by_threads]
    if any(rate is not None and not 0 < rate.typical <= rate.fastest for rate in rates):
        yield f"{name}: the fastest rate is below the typical rate"
    if ceiling.side < 0 or any(rate is not None and not rate.spread >= 0 for rate in rates):
        yield f"{name}: a side or a spread is negative"
    times = [*ceiling.steps.values(), *ceiling.seed_steps.values()]
    if not all(min(time.seconds, time.prepare_seconds, time.error) >= 0 for time in times):
        yield f"{name}: a step has a negative duration or error"
    bound = ready and bound_ops_per_second([ready], format)
    # With any number of threads: what was measured was computed, so it must be possible.
    fastest = max(ceiling.fastest, *(rate.fastest for rate in ceiling.products.values()))
    if bound and not fastest <= bound:
        yield f"{name} is {fastest / bound:.2f} times the most that {ceiling.device} can do"


def _thread_faults(ceiling: Ceiling, ready: Ready | None, of_trials: Set[int]) -> Iterator[str]:
    """Checks the threads: no more than the CPU has or the user set, the chosen number was timed, and so were
    those of trials, and its product is the ceiling's."""
    name, threads, timed = f"the ceiling of rank {ceiling.rank}", ceiling.threads, ceiling.thread_seconds
    most = None if ready is None or ready.processor is None else ready.processor.logical
    stated = "" if ready is None else ready.settings.get("threads", "")
    if ready is not None and listed(ready.device) is not None:
        most = 0  # a step of an accelerator has no threads to choose
    # Whoever sets the number of threads may set more than there are processors.
    if threads < 0 or (most is not None and threads > most and str(threads) != stated):
        yield f"{name} used {threads} threads, but its device has {most}"
    if untimed := {str(count) for count in of_trials} - timed.keys() - {str(threads)}:
        other = counted(int(min(untimed)), "thread")
        yield f"rank {ceiling.rank} trained with {other}, for which no step was timed before the span"
    steps = ceiling.timed
    if not all(step.seconds > 0 and str(step.threads) in timed and step.rounds > 0 for step in steps):
        yield f"{name}: a step was timed with other threads than {', '.join(timed):.60}, or in no time"
    if not 0 <= ceiling.threads_share <= 1:
        yield f"{name}: {ceiling.threads_share:g} is not a share of measurements"
    if timed and not (
        str(threads) in timed and all(key.isdigit() and took > 0 for key, took in timed.items())
    ):
        yield f"{name}: {counted(threads, 'thread')} cannot follow from the times of {', '.join(timed):.60}"
    products = ceiling.thread_products
    if products and not (products.keys() <= timed.keys() and products.get(str(threads)) == ceiling.product):
        yield f"{name}: the products with {', '.join(products):.60} threads do not fit those with {threads}"
