"""How many examples per second the loader gives, alone, and what each part of its work could give."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median
from time import perf_counter

from aiperf.data import Split
from aiperf.device import Device

PASSES = 3
"""Over the examples of the first pass, which are then in the file cache. Of an odd number the median is one
of them, and one that another program disturbed does not count."""
WARM_UP_SHARE = 0.2
"""Of each pass: what was read ahead before anybody asked is used up, and memory has its size."""
STAGE_SHARE = 0.1
"""Of the seconds, for each part of the work by itself."""
STAGE_EXAMPLES = 256
WAITING_TIMES = 1.5
"""So many times the loader's rate its slowest part can give, where it waits for something else."""


@dataclass(frozen=True)
class LoaderRate:
    """Of the training stream of one rank, in examples per second."""

    examples_per_second: float
    """The median of the passes over examples that were read before."""
    first_pass: float
    """Of these examples when they were read for the first time: from the disk, unless they were in the file
    cache before."""
    stages: Mapping[str, float]
    """What each part could give by itself, with all cores that do it."""

    @property
    def slowest(self) -> str:
        """What bounds the loader: its slowest part, or what none of them shows."""
        if not self.stages:
            return "preparing the batches"
        slowest = min(self.stages, key=lambda name: self.stages[name])
        if self.stages[slowest] > WAITING_TIMES * self.examples_per_second:
            return "waiting for cores that others use"
        return slowest


def measure_loaders(
    splits: Sequence[Split], device: Device, batch_size: int, seconds: float
) -> list[LoaderRate]:
    """For about so many seconds each, after its first batch, which waits for processes to start.

    Each split is read once, so that none is compared with another that the file cache already held. Then
    they are read in turns, for what else the cores do changes with time.
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
    """Examples per second of the first steps of the stream, as many as fit and no more than `steps`; and
    their number. The same examples each time."""
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
    """The fastest of those that fit: what else the cores do in the meantime is not its work."""
    until, fastest = perf_counter() + seconds, float("inf")
    while fastest == float("inf") or perf_counter() < until:
        began = perf_counter()
        once()
        device.synchronise()
        fastest = min(fastest, perf_counter() - began)
    return 1 / fastest
