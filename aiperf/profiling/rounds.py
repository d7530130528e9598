"""Plain and profiled steps in turn, so that both run under the same load of the machine, and the profiler's
events of each profiled step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import perf_counter

from torch.profiler import ProfilerActivity, profile

from aiperf.data import Batch, Split
from aiperf.profiling.marked import TrialSteps, raw_events
from aiperf.wire.profile_records import COLLECTIVES, STEP, Events


@dataclass(frozen=True)
class Rounds:
    """Times and events of the steps; see `aiperf.wire.profile_records.Recorded`."""

    plain_seconds: tuple[float, ...]
    profiled_seconds: tuple[float, ...]
    chosen: int
    """Index of the profiled step of median length."""
    steps: tuple[Events, ...]
    _profiler: profile
    """Profiler of the chosen step."""

    def write_trace(self, path: Path) -> None:
        """Writes the trace of the chosen step as JSON for Perfetto or chrome://tracing."""
        self._profiler.export_chrome_trace(str(path))


def run_rounds(steps: TrialSteps, rounds: int) -> Rounds:
    """Makes `rounds` plain and profiled steps in turn. One more of each comes first and is not counted,
    because torch loads and compiles what it needs in it."""
    timed = [(_timed(steps, steps.plain_step, nullcontext()), *_profiled(steps)) for _ in range(1 + rounds)][
        1:
    ]
    plain, profiled, profilers, layers = zip(*timed)
    chosen = sorted(range(rounds), key=profiled.__getitem__)[(rounds - 1) // 2]
    events = tuple(_events(*each) for each in zip(profilers, layers))
    return Rounds(plain, profiled, chosen, events, profilers[chosen])


def _profiled(steps: TrialSteps) -> tuple[float, profile, tuple[int, ...]]:
    profiler = profile(activities=[ProfilerActivity.CPU])
    seconds = _timed(steps, steps.marked_step, profiler)
    return seconds, profiler, tuple(steps.marked.layers)


def _timed(steps: TrialSteps, step: Callable[[], None], around: AbstractContextManager[object]) -> float:
    """Time of one step in seconds. All ranks of the group begin it together."""
    device = steps.rank.device
    with around:
        steps.rank.parallel.total(0)
        device.synchronise()
        began = perf_counter()
        step()
        device.synchronise()
        return perf_counter() - began


def _events(profiler: profile, layers: tuple[int, ...]) -> Events:
    found = raw_events(profiler)
    (step,) = (event for event in found if event.name() == STEP)
    begin, length, thread = step.start_ns(), step.duration_ns(), step.start_thread_id()
    kept = [
        event
        for event in found
        if 0 <= event.start_ns() - begin < length
        and (event.start_thread_id() == thread or event.name().startswith(COLLECTIVES))
    ]
    names = {name: place for place, name in enumerate(dict.fromkeys(event.name() for event in kept))}
    return Events(
        names=tuple(names),
        name=tuple(names[event.name()] for event in kept),
        begin=tuple(event.start_ns() - begin for event in kept),
        end=tuple(event.start_ns() + event.duration_ns() - begin for event in kept),
        sequence=tuple(event.sequence_nr() for event in kept),
        layers=layers,
    )


class FirstBatch(Split):
    """A split whose sweep is cut to its first batch, so that a validation to be timed is short."""

    def __init__(self, split: Split, batch_size: int) -> None:
        self._split = split
        self.num_examples = min(batch_size, split.num_examples)

    def stream(self, batch_size: int, seed: int, rank: int = 0, ranks: int = 1) -> Iterator[Batch]:
        return self._split.stream(batch_size, seed, rank, ranks)

    def sweep(self, batch_size: int, rank: int = 0, ranks: int = 1) -> Iterator[Batch]:
        return islice(self._split.sweep(batch_size, rank, ranks), 1)
