"""Journals of runs that never happened, made by the real search, the real counter and the real writer.

Groups train in simulated time, at a fixed rate of operations; errors fall with images, and differ from
trial to trial. So everything that a rule can check is consistent, unless a test makes it otherwise.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from aiperf.code import code_hash
from aiperf.config import (
    BoundsConfig,
    Config,
    DataConfig,
    LimitsConfig,
    SearchConfig,
    TrainingConfig,
    with_overrides,
)
from aiperf.files import RunFiles
from aiperf.journal.events import (
    Began,
    CeilingMeasured,
    Closed,
    ControlMeasured,
    Dispatched,
    Ended,
    Event,
    GroupLost,
    LegBegan,
    LegEnded,
    Opened,
    Origin,
    RankReady,
    Released,
    Stepped,
    Tested,
)
from aiperf.journal.file import VERSION, JournalWriter
from aiperf.journal.replay import Replay
from aiperf.known_sets import DIGITS
from aiperf.proposing.jobs import Jobs
from aiperf.proposing.plan import plan
from aiperf.tally import Classified
from aiperf.training.rank_log import StepLog
from aiperf.trial import Segment, State, StepBlock
from aiperf.wire.messages import (
    NOTHING_KEPT,
    Ceiling,
    Control,
    Evaluated,
    Finished,
    Rate,
    Ready,
    Started,
)
from nas.record import graph_to_json
from nas.seeds import resolve_seed

Timed = tuple[float, Event]

OPS_PER_SECOND = 20e9  # of a device: a step of the smallest seed takes some hundredths of a second
BLOCK_STEPS = 15
NEWS_SECONDS = 0.001  # from the end of work to its line
RELEASE = 12.0


@dataclass(frozen=True)
class Scene:
    """What kind of run."""

    groups: int = 2
    ranks_of_a_group: int = 1
    minutes: float = 0.5
    max_trials: int = 0
    epochs: int = 20
    device: str = "NVIDIA H200"
    out_of_memory: frozenset[int] = frozenset()
    """Trials whose first attempt fails so."""
    lost: tuple[tuple[int, float], ...] = ()
    """Groups that die, and when; they come back two seconds later."""
    killed_at: float | None = None
    """When the first leg is cut off; a second one follows."""
    changes: tuple[tuple[str, Any], ...] = ()
    """Of the configuration, by dotted key."""

    @property
    def config(self) -> Config:
        plain = Config(
            preset="simulated",
            seed_architecture="residual-4-8-16",
            data=DataConfig("digits", channels=1, size=32, classes=10, validation_examples=400),
            training=TrainingConfig(
                format="bf16",
                batch_size=50,
                learning_rate=0.1,
                epochs=(self.epochs,),
                validate_every_examples=2000,
            ),
            search=SearchConfig(population=4, bounds=BoundsConfig(max_operations=16.0, max_parameters=16.0)),
            limits=LimitsConfig(minutes=self.minutes, max_trials=self.max_trials),
        )
        return with_overrides(plain, dict(self.changes))


DATA = {
    "name": "digits",
    "synthetic": False,
    "channels": 1,
    "size": 32,
    "classes": 10,
    "sha256": DIGITS.sha256,
    "official_training_examples": 600,
    "training_examples": 200,
    "training_examples_per_class": [19, 21],
    "validation_examples": 400,
    "validation_examples_per_class": [39, 41],
    "test_examples": 1197,
    "test_examples_per_class": [116, 122],
}


def told(scene: Scene = Scene()) -> list[Timed]:
    """The lines of such a run, in order."""
    return list(_simulated(scene))


@cache  # the same few runs are told many times in a process
def _simulated(scene: Scene) -> list[Timed]:
    return Simulation(scene).run()


def of_origin(timed: list[Timed], origin: Origin) -> list[Timed]:
    """The same lines of a run that says where its figures come from."""
    t, opened = timed[0]
    assert isinstance(opened, Opened)
    return [(t, replace(opened, origin=origin)), *timed[1:]]


PARTS = {Began: "started", Stepped: "block", Closed: "segment", Ended: "finished", Tested: "evaluated"}


def part(event: Event) -> Any:
    """What a group said, in the event that tells it."""
    return getattr(event, PARTS[type(event)])


def within(event: Event, **changes: Any) -> Any:
    """The event with something else said by the group."""
    return replace(event, **{PARTS[type(event)]: replace(part(event), **changes)})


def keeping(timed: list[Timed]) -> list[Timed]:
    """The same, where each trial keeps the network of the validation that is its best one there."""
    run = Replay()
    for t, event in timed:
        ended = isinstance(event, Ended) and event.finished.kept is not None
        run.add(t, within(event, kept=None) if ended else event)
    best = {
        (attempt.trial.number, attempt.number): attempt.best_validation.segment.index
        for attempt in run.attempts
        if attempt.best_validation
    }

    def kept(event: Event) -> Event:
        if not isinstance(event, Ended) or event.finished.kept is None:
            return event
        return within(event, kept=best.get((event.finished.trial, event.finished.attempt), NOTHING_KEPT))

    return [(t, kept(event)) for t, event in timed]


def write_run(directory: Path, timed: list[Timed]) -> RunFiles:
    """A run directory: the journal by the real writer, and the logs that the ranks would have written."""
    files = RunFiles(directory)
    with JournalWriter.begin(files) as journal:
        for t, event in timed:
            journal.write(t, event)
    write_witnesses(files, timed)
    return files


def write_witnesses(files: RunFiles, timed: list[Timed]) -> list[Timed]:
    """Every rank of a group writes its share of what the group did; the lines with the hashes of that."""
    ranks: dict[int, dict[int, StepLog]] = {}
    group_of: dict[tuple[int, int], int] = {}
    hashed: list[Timed] = []
    for path in files.directory.glob("logs/*.jsonl"):
        path.unlink()
    with ExitStack() as opened:
        for t, event in timed:
            if isinstance(event, RankReady):
                path = files.witness(event.ready.host, event.ready.rank)
                log = opened.enter_context(StepLog(path))
                ranks.setdefault(event.group, {})[event.ready.rank] = log
            elif isinstance(event, Dispatched):
                group_of[event.trial.number, event.attempt] = event.group
            elif isinstance(event, Stepped | Closed):
                work = part(event)
                group = ranks[group_of[work.trial, work.attempt]].values()
                for place, log in enumerate(group):
                    _testify(log, event, place, len(group))
                if isinstance(event, Closed):
                    digests = b"".join(log.digest() for log in group)
                    event = replace(event, logs=sha256(digests).hexdigest())
            hashed.append((t, event))
    return hashed


def _testify(log: StepLog, event: Stepped | Closed, place: int, num_ranks: int) -> None:
    def share(examples: int) -> int:
        return examples * (place + 1) // num_ranks - examples * place // num_ranks

    if isinstance(event, Stepped):
        found = event.block
        log.steps(found.trial, found.attempt, found.segment, found.steps, share(found.examples))
    else:
        closed, whole = event.segment, event.segment.tally
        tally = type(whole)(*map(share, whole.numbers))
        log.answers(closed.trial, closed.attempt, closed.index, tally)


class Simulation:
    """What a test may let do otherwise."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.config = scene, scene.config
        data = self.config.data
        size = (data.channels, data.size, data.size)
        self.seed = resolve_seed(self.config.seed_architecture, size, data.classes)
        self.replay = Replay()
        self.jobs = Jobs.of(self.config, self.seed, self.replay)
        self.timed: list[Timed] = []
        self.now = 0.0
        self.assigned: list[deque[Dispatched]] = []
        self.began_at = 0.0
        """Time of day [s]."""

    def run(self) -> list[Timed]:
        graph = graph_to_json(self.seed)
        opened = Opened(VERSION, "simulated", "0.1.0", code_hash(), self.config, graph)
        self.write(0.0, opened)
        if self.scene.killed_at is not None:
            self.leg(0, self.scene.killed_at)
        self.leg(self.replay.num_legs, float("inf"))
        return self.timed

    def write(self, t: float, event: Event) -> None:
        self.now = max(self.now, t)
        self.timed.append((self.now, event))
        self.replay.add(self.now, event)
        if not isinstance(event, Opened):
            self.jobs.follow(event)

    def leg(self, index: int, killed_at: float) -> None:
        """One leg, up to its end or to where it is cut off."""
        scene, width = self.scene, self.scene.ranks_of_a_group
        self.now, self.began_at = 0.0, datetime(2026, 1, 1, index, tzinfo=timezone.utc).timestamp()
        groups = tuple(
            tuple(range(1 + group * width, 1 + (group + 1) * width)) for group in range(scene.groups)
        )
        left = scene.minutes * 60 - self.replay.span_seconds if scene.minutes else None
        self.write(0.0, LegBegan(index, f"2026-01-01T0{index}:00:00+00:00", ("aiperf-hpc", "run"), groups))
        self.ready(3.0, range(scene.groups), groups)
        for group in groups:
            for rank in group:
                rates = Rate(7.5e14 + rank, 7.4e14 + rank, 0.004), Rate(4.1e12 + rank, 4.0e12 + rank, 0.002)
                ceiling = Ceiling(rank, f"node{rank}", scene.device, "bf16", 8192, *rates)
                self.write(5.0, CeilingMeasured(ceiling))
        for group in groups:
            for rank in group:
                rate = 100.0 + rank
                control = Control(rank, f"node{rank}", scene.device, 256, 20, 5120 / rate, rate)
                self.write(8.0, ControlMeasured(control))
        self.deadline = float("inf") if left is None else RELEASE + left
        self.write(RELEASE, Released(None if left is None else self.deadline))
        self.assigned = [deque() for _ in groups]
        works = {group: self.work(group, RELEASE) for group in range(scene.groups)}
        deaths = dict(scene.lost) if index == 0 else {}
        queue = [entry for group in works if (entry := self.next_of(group, works))]
        heapq.heapify(queue)
        while queue:
            t, group, event = heapq.heappop(queue)
            if t > killed_at:
                return
            if t > deaths.get(group, float("inf")):
                died = deaths.pop(group)
                self.write(died, GroupLost(group, "the worker was killed by signal 9"))
                self.ready(died + 2.0, [group], groups)
                self.assigned[group].clear()
                works[group] = self.work(group, died + 2.0)
            else:
                self.write(t + NEWS_SECONDS, event)
                if isinstance(event, Ended):
                    self.assigned[group].popleft()
            if entry := self.next_of(group, works):
                heapq.heappush(queue, entry)
        self.end()

    def next_of(self, group: int, works: dict[int, Iterator[Timed]]) -> tuple[float, int, Event] | None:
        self.fill(group)
        entry = next(works[group], None)
        return None if entry is None else (entry[0], group, entry[1])

    def end(self) -> None:
        last = max((v.end for a in self.replay.attempts for v in a.validations), default=RELEASE)
        end = self.deadline if self.scene.minutes else last
        self.write(end + 0.01, LegEnded("deadline" if self.scene.minutes else "trials", end))
        best = self.replay.best
        if best is not None and best.error is not None:
            of = int(str(DATA["test_examples"]))
            self.write(
                self.now + 1.0,
                Tested(Evaluated(best.number, Classified(of, round(of * (1 - best.error))), 0.9)),
            )

    def ready(self, t: float, which: range | list[int], groups: tuple[tuple[int, ...], ...]) -> None:
        for group in which:
            for rank in groups[group]:
                ready = Ready(
                    rank=rank,
                    host=f"node{rank}",
                    pid=1000 + rank,
                    device=self.scene.device,
                    memory_bytes=150 * 10**9,
                    software={"torch": "2.13.0"},
                    code_hash=code_hash(),
                    data=DATA,
                    initial_weights="1n1t",
                    wall_seconds=self.began_at + t + 0.01 * rank,
                    seconds=1.5,
                    multiplies={"matrix product": "bf16", "convolution": "bf16"},
                )
                self.write(t, RankReady(group, ready, 0.01 * rank))

    def fill(self, group: int) -> None:
        while len(self.assigned[group]) < 2 and self.now < self.deadline:
            job = self.jobs.next(group)
            if job is None:
                return
            self.write(self.now, job)
            self.assigned[group].append(job)

    def work(self, group: int, t: float) -> Iterator[Timed]:
        """What a group does, one piece at a time, each when it ends."""
        while self.assigned[group]:
            job = self.assigned[group][0]
            number = job.trial.number
            t += 0.01
            if t >= self.deadline:
                return
            yield t, Began(Started(number, job.attempt, job.graph_key, 0.5), t)
            if number in self.scene.out_of_memory and job.attempt == 1:
                t += 0.02
                told = Finished(number, job.attempt, State.FAILED, "out of memory", out_of_memory=True)
                yield t, Ended(told, t)
                continue
            for timed in self.attempt(job, t):
                yield timed
                t = timed[0]
            if self.replay.trials[number].state is State.STOPPED:
                return

    def attempt(self, job: Dispatched, t: float) -> Iterator[Timed]:
        trial, rate = job.trial, OPS_PER_SECOND
        number, batch = trial.number, trial.hyper.batch_size
        step_seconds = batch * (_price(job.forward) + _price(job.backward)) / rate
        validate_seconds = 400 * _price(job.evaluate) / rate
        planned, chance = plan(trial, self.config.training, 200), random.Random(number)
        floor, done, index = 0.05 + 0.1 * chance.random(), 0, 0
        lowest, kept = math.inf, NOTHING_KEPT
        while done < planned.steps:
            steps, seconds, halted = 0, 0.0, False
            until = min(planned.segment_steps, planned.steps - done)
            while steps < until and not halted:
                room = (self.deadline - 1.5 * validate_seconds - t) / step_seconds
                block = int(min(BLOCK_STEPS, until - steps, max(0.0, room)))
                halted = block < min(BLOCK_STEPS, until - steps)
                if block:
                    t += block * step_seconds
                    steps, seconds = steps + block, seconds + block * step_seconds
                    examples, spent = block * batch, block * step_seconds
                    yield t, Stepped(StepBlock(number, job.attempt, index, block, examples, spent, 1.5), t)
            if not steps:
                yield t, Ended(Finished(number, job.attempt, State.STOPPED, "the run ended", kept=kept), t)
                return
            done, t = done + steps, t + validate_seconds
            error = floor + 0.6 * 0.5 ** (done * batch / 2000) + 0.02 * chance.random()
            tally = Classified(400, 400 - round(400 * error))
            segment = Segment(
                number, job.attempt, index, steps, steps * batch, seconds, tally, validate_seconds
            )
            if segment.unbounded < lowest and t <= self.deadline:
                lowest, kept = segment.unbounded, index
            yield t, Closed(segment, t)
            index += 1
            if halted and done < planned.steps:
                yield t, Ended(Finished(number, job.attempt, State.STOPPED, "the run ended", kept=kept), t)
                return
        yield t, Ended(Finished(number, job.attempt, State.COMPLETE, "", kept=kept), t)


def _price(vector: tuple[int, ...]) -> int:
    return 2 * vector[0] + sum(vector[1:])
