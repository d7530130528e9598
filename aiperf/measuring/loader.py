"""The rate of the loader by itself in examples per second, and the rate that each part of its work allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median
from time import perf_counter

from aiperf.data import Split
from aiperf.device import Device

PASSES = 3
"""Number of passes over the examples of the first pass, which are then in the file cache. An odd number has a
median that is one of them, so one pass that another program disturbs does not count."""
WARM_UP_SHARE = 0.2
"""Fraction of each pass that is not timed: until then the batches that were read ahead are used up, and the
memory has been allocated."""
STAGE_SHARE = 0.1
"""Time for each part of the work by itself, as a fraction of the time budget."""
STAGE_EXAMPLES = 256
WAITING_TIMES = 1.5
"""If the slowest part alone is faster than the loader by more than this factor, the loader waits for
something else."""


@dataclass(frozen=True)
class LoaderRate:
    """Rate of the training stream of one rank, in examples per second."""

    examples_per_second: float
    """Median of the passes over examples that had been read before."""
    first_pass: float
    """Rate when these examples were read for the first time: from the disk, unless they were in the file
    cache already."""
    stages: Mapping[str, float]
    """Rate of each part of the work by itself, with all the cores that do it, by name."""

    @property
    def slowest(self) -> str:
        """What bounds the loader, in words: its slowest part, or waiting that no part explains."""
        if not self.stages:
            return "preparing the batches"
        slowest = min(self.stages, key=lambda name: self.stages[name])
        if self.stages[slowest] > WAITING_TIMES * self.examples_per_second:
            return "waiting for cores that others use"
        return slowest


def measure_loaders(
    splits: Sequence[Split], device: Device, batch_size: int, seconds: float
) -> list[LoaderRate]:
    """Measures the loader of each split for about `seconds`, after its first batch, which waits for processes
    to start.

    First each split is read once, so that none is compared with one that the file cache already held. Then
    the splits are read in turn, because the load of other programs on the cores changes with time.
    """
    share = seconds / (1 + PASSES)
    firsts = [_pass(split, device, batch_size, share) for split in splits]
    again = [
        [_pass(split, device, batch_size, share, steps)[0] for split, (_, steps) in zip(splits, firsts)]
        for _ in range(PASSES)
    ]
    stages = [_stages(split, device, STAGE_SHARE * seconds) for split in splits]
    return [
        LoaderRate(median(rates), first, each) for rates, (first, _), each in zip(zip(*again), firsts, stages)
    ]


def _pass(
    split: Split, device: Device, batch_size: int, seconds: float, steps: float = inf
) -> tuple[float, int]:
    """Examples per second over the first steps of the stream, as many as fit into `seconds` and at most
    `steps`, and the number of these steps. Every pass reads the same examples."""
    stream = split.stream(batch_size, seed=0)
    next(stream)
    began = now = perf_counter()
    since, examples, done = began, 0, 0
    while not done or (now - began < seconds and done < steps):
        shown, _ = next(stream)
        examples, done = examples + len(shown), done + 1
        device.synchronise()
        now = perf_counter()
        if now - began < WARM_UP_SHARE * seconds and done < WARM_UP_SHARE * steps:
            since, examples = now, 0
    return examples / (now - since), done


def _stages(split: Split, device: Device, seconds: float) -> dict[str, float]:
    number = min(STAGE_EXAMPLES, split.num_examples)
    return {
        stage.name: stage.workers * number * _times_per_second(stage.once, device, seconds)
        for stage in split.stages(number)
    }


def _times_per_second(once: Callable[[], object], device: Device, seconds: float) -> float:
    """Rate of a piece of work by the fastest one that was timed, because slower ones were disturbed by other
    programs."""
    until, fastest = perf_counter() + seconds, float("inf")
    while fastest == float("inf") or perf_counter() < until:
        began = perf_counter()
        once()
        device.synchronise()
        fastest = min(fastest, perf_counter() - began)
    return 1 / fastest
