"""Fits that turn a run into assumptions: the times of its steps and validations, the speed that follows from
them, and the law of its errors."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiperf.journal.attempts import Attempt
from aiperf.journal.replay import Replay
from aiperf.pretending.assumptions import Errors, Speed
from aiperf.proposing.plan import validated_at_once
from aiperf.score.lineage import rebuilt
from aiperf.trial import Segment
from aiperf.wording import percent
from nas.ops import TENSOR_OPS

Array = NDArray[Any]

POWERS = tuple(np.arange(0.1, 2.55, 0.1))
SIZE_POWERS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)
SIZES = 40
"""Numbers of images that are tried, evenly in their logarithm over what was seen and ten times beyond."""
LARGEST_SPREAD = 0.5


@dataclass(frozen=True)
class FromRun:
    """One number, or several that were found together."""

    names: str
    text: str
    """Its value, and how it was found; or why it is not known."""
    known: bool = True


@dataclass(frozen=True)
class NetworkSize:
    layers: int
    train: int
    """Tensor operations of one example."""
    evaluate: int
    parameters: int
    relative: float
    """Operations, times the seed's."""
    validated_at_once: int
    """Examples in a batch of a validation."""


def networks_of(replay: Replay, ranks: int) -> dict[int, NetworkSize]:
    """By trial, for groups of so many ranks."""
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


@dataclass(frozen=True)
class SegmentWork:
    """The speed of one segment; the first step of a trial is apart."""

    network: NetworkSize
    step_operations: float
    """Operations of one rank."""
    steps: int
    seconds: float
    segment: Segment


def segment_work(
    closed: Sequence[Attempt], networks: Mapping[int, NetworkSize], run: Replay, ranks: int
) -> list[SegmentWork]:
    firsts = _first_blocks(run)
    found = []
    for attempt in closed:
        network = networks.get(attempt.trial.number)
        for v in attempt.validations if network is not None else ():
            assert network is not None
            steps, seconds = firsts.get(attempt.index, (0, 0.0)) if v.segment.index == 0 else (0, 0.0)
            steps, seconds = v.segment.steps - steps, v.segment.train_seconds - seconds
            operations = network.train * attempt.trial.hyper.batch_size / ranks
            if steps > 0 and seconds > 0:
                found.append(SegmentWork(network, operations, steps, seconds, v.segment))
    return found


def _first_blocks(replay: Replay) -> dict[int, tuple[int, float]]:
    """Steps and seconds of the first block of each attempt, by its index."""
    attempts = replay.blocks.column("attempts")
    indices, places = np.unique(attempts, return_index=True)
    steps, seconds = replay.blocks.column("steps"), replay.blocks.column("seconds")
    return {int(i): (int(steps[p]), float(seconds[p])) for i, p in zip(indices, places)}


def fitted_speed(segments: Sequence[SegmentWork]) -> tuple[Speed, FromRun]:
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
    return speed.step_seconds + speed.layer_seconds * network.layers + operations / speed.ops_per_second


def of_median(speed: Speed, blocks: float) -> Speed:
    """What is assumed is the median of a block, drawn from a lognormal law; its mean is so much more."""
    usual = math.exp(blocks**2 / 2)
    return Speed(
        speed.ops_per_second * usual,
        speed.step_seconds / usual,
        speed.layer_seconds / usual,
        speed.validation / usual,
    )


def block_spread(replay: Replay) -> float:
    """Spread of the seconds of a step within one attempt without its first block: a robust standard
    deviation."""
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
    """A standard deviation of what is normal but for a few."""
    return float(1.4826 * np.median(np.abs(np.array(values) - np.median(values))))


def network_spread(
    closed: Sequence[Attempt], segments: Sequence[SegmentWork], speed: Speed, replay: Replay, blocks: float
) -> tuple[float, int]:
    """What a morphism does to the logarithm of rate measured ÷ modelled, as a robust standard deviation, from
    how many trials and their parents. Both must have trained on one host, lest its speed is taken for theirs.
    The part that a spread of `blocks` explains is left out."""
    usual, took, num = (defaultdict[int, float](float) for _ in range(3))
    for each in segments:
        trial = each.segment.trial
        usual[trial] += each.steps * step_seconds(speed, each.network, each.step_operations)
        took[trial] += each.seconds
    num_blocks = Counter(map(int, replay.blocks.column("attempts")))
    for attempt in closed:
        num[attempt.trial.number] += num_blocks[attempt.index]
    offsets = {trial: math.log(usual[trial] / took[trial]) for trial in took}
    hosts = {each.trial.number: first_host(each) for each in closed}
    pairs = [
        (trial, trial.parent)
        for trial in {each.trial.number: each.trial for each in closed}.values()
        if trial.number in offsets and trial.parent in offsets and trial.morphisms
        if hosts[trial.number] == hosts[trial.parent]
    ]
    changes = [(offsets[one.number] - offsets[of]) / math.sqrt(len(one.morphisms)) for one, of in pairs]
    noise = [blocks**2 * (1 / num[one.number] + 1 / num[of]) / len(one.morphisms) for one, of in pairs]
    if not pairs:
        return 0.0, 0
    return math.sqrt(max(0.0, robust_spread(changes) ** 2 - float(np.mean(noise)))), len(pairs)


def first_host(attempt: Attempt) -> str:
    """The host of the group that made it."""
    return attempt.leg.devices[attempt.leg.began.groups[attempt.group][0]].host


def first_step_seconds(
    closed: Sequence[Attempt], networks: Mapping[int, NetworkSize], ranks: int, speed: Speed, replay: Replay
) -> float:
    """What the first step of a trial takes more than the others [s]."""
    firsts, more = _first_blocks(replay), []
    for attempt in closed:
        network = networks.get(attempt.trial.number)
        if network is not None and attempt.index in firsts:
            steps, seconds = firsts[attempt.index]
            operations = network.train * attempt.trial.hyper.batch_size / ranks
            more.append(seconds - steps * step_seconds(speed, network, operations))
    return max(0.0, float(np.mean(more))) if more else 0.0


def not_negative(rows: Array, values: Array, needed: int) -> tuple[float, ...]:
    """x of least relative error of rows @ x, none below 0; the column `needed` is part of it. The sum of
    all is that of the values: a long run must come out as long as it was.

    Of so few columns every choice is tried.
    """
    best, least = np.zeros(rows.shape[1]), np.inf
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
    """Fits the law of errors to (images of the lineage, operations relative to the seed's, error, trial);
    `start` is chance."""
    images, relative, errors, trials = (np.array(column, dtype=float) for column in zip(*points))
    lowest, highest = max(1.0, images.min() / 10), images.max() * 10
    found, least = (0.0, 1.0, 1.0, 0.0), np.inf
    for size, power, size_power in product(np.geomspace(lowest, highest, SIZES), POWERS, SIZE_POWERS):
        left = (1 + images / size) ** -power
        share, told = relative**-size_power * (1 - left), errors - start * left
        floor = float(np.clip(share @ told / max(1e-12, share @ share), 0.0, 0.99 * start))
        off = float(((floor * share - told) ** 2).sum())
        if off < least:
            found, least = (floor, float(size), float(power), size_power), off
    floor, size, power, size_power = found
    left = (1 + images / size) ** -power
    foreseen = floor * relative**-size_power * (1 - left) + start * left
    ratios = np.log(np.maximum(errors, 1e-3) / np.maximum(foreseen, 1e-3))
    means = [ratios[trials == trial].mean() for trial in np.unique(trials)]
    return Errors(floor, size, power, size_power, min(LARGEST_SPREAD, float(np.std(means))))
