"""Fits that turn a run into assumptions: the times of its steps and validations, the speed that follows from
them, and the law of its errors. They use numpy and the journal alone, and know nothing of SimPy."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiperf.journal.attempts import Attempt
from aiperf.journal.replay import Replay
from aiperf.pretending.assumptions import Errors, Speed
from aiperf.proposing.plan import validated_at_once
from aiperf.score.lineage import rebuilt
from aiperf.wire.trial import Segment
from aiperf.wording import percent
from nas.frozen import frozen
from nas.ops import TENSOR_OPS

Array = NDArray[Any]

# A grid: each point is a linear fit, and no start value can lead astray.
POWERS = tuple(np.arange(0.1, 2.55, 0.1))
"""Values that are tried for the power by which the error falls with the number of examples."""
SIZE_POWERS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Values that are tried for the power by which its floor falls with the size of the network."""
SIZES = 40
"""Number of values that are tried for the number of examples, evenly in their logarithm, from a tenth of the
fewest seen to ten times the most."""
LARGEST_SPREAD = 0.5
"""Maximum spread of the errors of equal networks: few points may lie anywhere."""


@frozen
class FromRun:
    """A number of the assumptions that was looked for in a run, or several found together."""

    names: str
    text: str
    """Its value and how it was found, or why it is not known."""
    known: bool = True


@frozen
class NetworkSize:
    """The size of a network, as far as the model of a machine depends on it."""

    layers: int
    train: int
    """Tensor operations of one example."""
    evaluate: int
    parameters: int
    relative: float
    """Operations relative to the seed's."""
    validated_at_once: int
    """Number of examples in a batch of a validation."""


def networks_of(replay: Replay, ranks: int) -> dict[int, NetworkSize]:
    """The sizes of all networks that can be rebuilt, by trial. `ranks`: number of ranks of a group."""
    found, seed = {}, 0
    for entry in rebuilt(replay):
        if entry.graph is not None:
            cost = entry.graph.cost
            seed = seed or entry.graph.operations
            found[entry.trial.number] = NetworkSize(
                len(entry.graph.nodes),
                cost.train.price(TENSOR_OPS),
                cost.evaluate.price(TENSOR_OPS),
                entry.graph.num_parameters,
                entry.graph.operations / seed,
                validated_at_once(entry.graph, ranks),
            )
    return found


@frozen
class TimedAttempt:
    """An attempt that validated, with what the ranks of its group had to compute."""

    attempt: Attempt
    network: NetworkSize
    step_operations: float
    """Tensor operations of one rank in a step."""
    blocks: int
    """Number of blocks of steps that were reported."""
    first_steps: int
    """Steps of its first block, in which libraries choose their kernels; 0 without a block."""
    first_seconds: float

    @property
    def host(self) -> str:
        """The host of the leader of its group."""
        leg = self.attempt.leg
        return leg.devices[leg.began.groups[self.attempt.group][0]].host


def timed_attempts(
    closed: Sequence[Attempt], networks: Mapping[int, NetworkSize], replay: Replay, ranks: int
) -> list[TimedAttempt]:
    """The attempts whose network is known, with their operations and first blocks."""
    column = replay.blocks.column
    indices, places, counts = np.unique(column("attempts"), return_index=True, return_counts=True)
    steps, seconds = column("steps")[places], column("seconds")[places]
    blocks = {int(i): (int(n), int(s), float(t)) for i, n, s, t in zip(indices, counts, steps, seconds)}
    return [
        TimedAttempt(
            attempt,
            network,
            network.train * attempt.trial.hyper.batch_size / ranks,
            *blocks.get(attempt.index, (0, 0, 0.0)),
        )
        for attempt in closed
        if (network := networks.get(attempt.trial.number)) is not None
    ]


@frozen
class SegmentWork:
    """The steps of one segment and their time, without the first block of a trial."""

    network: NetworkSize
    step_operations: float
    steps: int
    seconds: float
    segment: Segment


def segment_work(timed: Sequence[TimedAttempt]) -> list[SegmentWork]:
    """The segments that have steps after the first block. In the first block libraries choose their kernels,
    so its steps and seconds are subtracted."""
    found = []
    for each in timed:
        for segment in (v.segment for v in each.attempt.validations):
            steps, seconds = segment.steps, segment.train_seconds
            if segment.index == 0:
                steps, seconds = steps - each.first_steps, seconds - each.first_seconds
            if steps > 0 and seconds > 0:
                found.append(SegmentWork(each.network, each.step_operations, steps, seconds, segment))
    return found


def fitted_speed(segments: Sequence[SegmentWork]) -> tuple[Speed, FromRun]:
    """The speed at which the segments took their time: seconds per step, per layer and per operation. The
    weights are relative: a segment of seconds counts as much as one of minutes."""
    rows = np.array([(s.steps, s.steps * s.network.layers, s.steps * s.step_operations) for s in segments])
    took = np.array([s.seconds for s in segments])
    step, layer, operation = not_negative(rows.astype(float), took, needed=2)
    off = float(np.sqrt(np.mean((rows @ (step, layer, operation) / took - 1) ** 2)))
    text = (
        f"{1 / operation:.4g} OPS, {step:.4g} s a step, {layer:.4g} s a layer: least squares over "
        f"{len(segments)} segments, {percent(off, 1)} off (root mean square)"
    )
    return Speed(1 / operation, step, layer), FromRun("speed", text)


def with_validation(segments: Sequence[SegmentWork], speed: Speed, ranks: int) -> tuple[Speed, FromRun]:
    """The speed with its factor for validations: the time that they take by this speed ÷ their measured time.
    A layer counts a third, because a validation has the forward pass only."""
    foreseen = sum(
        each.network.evaluate * each.segment.of / ranks / speed.ops_per_second
        + math.ceil(each.segment.of / each.network.validated_at_once)
        * speed.layer_seconds
        * each.network.layers
        / 3
        for each in segments
    )
    took = sum(each.segment.validate_seconds for each in segments)
    speed = replace(speed, validation=foreseen / took if took and foreseen else 1.0)
    return speed, FromRun("speed.validation", f"{speed.validation:.4g}: of {len(segments)} validations")


def step_seconds(speed: Speed, network: NetworkSize, operations: float) -> float:
    """Modelled time in seconds of a training step with this many operations per rank. `operations` are those
    of one rank."""
    return speed.step_seconds + speed.layer_seconds * network.layers + operations / speed.ops_per_second


def of_median(speed: Speed, blocks: float) -> Speed:
    """The speed of the median block, from that of the mean one. A simulation multiplies the time of each
    block by a lognormal factor of spread `blocks` and median 1, whose mean is exp(blocks² / 2)."""
    usual = math.exp(blocks**2 / 2)
    return Speed(
        speed.ops_per_second * usual,
        speed.step_seconds / usual,
        speed.layer_seconds / usual,
        speed.validation / usual,
    )


def block_spread(replay: Replay) -> float:
    """How much the time of a step varies within an attempt, without its first block: a robust standard
    deviation of its logarithm."""
    attempts, steps = replay.blocks.column("attempts"), replay.blocks.column("steps")
    each = replay.blocks.column("seconds") / np.maximum(steps, 1)
    off: list[float] = []
    for attempt in np.unique(attempts):
        of = each[attempts == attempt][1:]
        of = of[of > 0]
        if len(of) > 1:
            off += list(np.log(of / np.median(of)))
    return robust_spread(off) if off else 0.0


def robust_spread(values: Sequence[float]) -> float:
    """A standard deviation that few outliers do not change: 1.4826 times the median absolute deviation, as
    for a normal distribution."""
    return float(1.4826 * np.median(np.abs(np.array(values) - np.median(values))))


def network_spread(
    timed: Sequence[TimedAttempt], segments: Sequence[SegmentWork], speed: Speed, blocks: float
) -> tuple[float, int]:
    """How much a morphism changes the logarithm of rate measured ÷ modelled, as a robust standard deviation,
    and the number of trials from which that follows. A trial and its parent must have trained on the same
    host: otherwise the difference could be that of the hosts. The part that a spread of `blocks` explains is
    left out. A trial with several morphisms has taken as many steps of a random walk, so its change is
    divided by the root of their number."""
    usual, took, num = (defaultdict[int, float](float) for _ in range(3))
    for part in segments:
        trial = part.segment.trial
        usual[trial] += part.steps * step_seconds(speed, part.network, part.step_operations)
        took[trial] += part.seconds
    for each in timed:
        num[each.attempt.trial.number] += each.blocks
    offsets = {trial: math.log(usual[trial] / took[trial]) for trial in took}
    last = {each.attempt.trial.number: each for each in timed}
    pairs = [
        (one.attempt.trial, parent)
        for number, one in last.items()
        if number in offsets and (parent := one.attempt.trial.parent) in offsets
        if one.attempt.trial.morphisms and one.host == last[parent].host
    ]
    changes = [(offsets[one.number] - offsets[of]) / math.sqrt(len(one.morphisms)) for one, of in pairs]
    noise = [blocks**2 * (1 / num[one.number] + 1 / num[of]) / len(one.morphisms) for one, of in pairs]
    if not pairs:
        return 0.0, 0
    return math.sqrt(max(0.0, robust_spread(changes) ** 2 - float(np.mean(noise)))), len(pairs)


def first_step_seconds(timed: Sequence[TimedAttempt], speed: Speed) -> float:
    """Seconds that the first step of a trial takes more than the others, as a mean."""
    more = [
        each.first_seconds - each.first_steps * step_seconds(speed, each.network, each.step_operations)
        for each in timed
        if each.blocks
    ]
    return max(0.0, float(np.mean(more))) if more else 0.0


def not_negative(rows: Array, values: Array, needed: int) -> tuple[float, ...]:
    """The x with the least relative error of rows @ x, no component of which is below 0, and with the column
    `needed`. It is scaled so that the sum of rows @ x is that of the values: a run must be modelled as long
    as it was.

    There are so few columns that every choice of them is tried. Rows are divided by the values, so that the
    error is relative.
    """
    best, least = np.zeros(rows.shape[1]), np.inf
    # The columns differ by many orders of magnitude: steps, and operations.
    scale = np.maximum(rows.max(axis=0), 1e-300)
    weighed, ones = rows / scale / values[:, None], np.ones(len(values))
    others = [column for column in range(rows.shape[1]) if column != needed]
    for size in range(len(others) + 1):
        for chosen in combinations(others, size):
            columns = [needed, *chosen]
            if len(columns) > len(values):
                continue
            found, *_ = np.linalg.lstsq(weighed[:, columns], ones, rcond=None)
            left = float(((weighed[:, columns] @ found - 1) ** 2).sum())
            if (found >= 0).all() and found[0] > 0 and left < least:
                best, least = np.zeros(rows.shape[1]), left
                best[columns] = found / scale[columns]
    total = float((rows @ best).sum())
    return tuple(float(each) for each in best * (values.sum() / total if total else 1.0))


def fitted_errors(points: Sequence[tuple[int, float, float, int]], start: float) -> Errors:
    """Fits the law of errors to points of (examples of the lineage, operations relative to the seed's, error,
    trial). `start`: the error of an untrained network, which is chance. The law is floor · size^−p · (1 −
    left) + start · left, with left = (1 + examples / E)^−q; for each point of the grid the floor follows by
    linear least squares."""
    images, relative, errors, trials = (np.array(column, dtype=float) for column in zip(*points))
    lowest, highest = max(1.0, images.min() / 10), images.max() * 10
    found, least = (0.0, 1.0, 1.0, 0.0), np.inf
    for size, power, size_power in product(np.geomspace(lowest, highest, SIZES), POWERS, SIZE_POWERS):
        left = (1 + images / size) ** -power
        share, rest = relative**-size_power * (1 - left), errors - start * left
        floor = float(np.clip(share @ rest / max(1e-12, share @ share), 0.0, 0.99 * start))
        off = float(((floor * share - rest) ** 2).sum())
        if off < least:
            found, least = (floor, float(size), float(power), size_power), off
    floor, size, power, size_power = found
    left = (1 + images / size) ** -power
    foreseen = floor * relative**-size_power * (1 - left) + start * left
    ratios = np.log(np.maximum(errors, 1e-3) / np.maximum(foreseen, 1e-3))
    # The spread is that between networks, so the validations of a trial count once.
    means = [ratios[trials == trial].mean() for trial in np.unique(trials)]
    return Errors(floor, size, power, size_power, min(LARGEST_SPREAD, float(np.std(means))))
