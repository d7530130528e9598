"""Journals of runs that never were: real events, real searches, real counts of operations; invented times.

Groups are coroutines on one simulated clock. Each yields the time at which it wants to go on.
"""

from __future__ import annotations

import heapq
import itertools
import json
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
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
    to_toml,
)
from aiperf.files import RunFiles
from aiperf.journal.events import (
    Beat,
    Began,
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
from aiperf.journal.file import VERSION, chained, read_journal
from aiperf.journal.replay import Replay, replay
from aiperf.proposing.jobs import Jobs
from aiperf.proposing.plan import plan
from aiperf.score.peak import GIB, listed
from aiperf.tally import Classified
from aiperf.trial import Segment, State, StepBlock
from aiperf.wire.formats import PRODUCTS
from aiperf.wire.messages import Control, Evaluated, Finished, Ready, Started
from analysis.readings.judged import Judged, examine
from nas.graph import Graph
from nas.ops import OPS, Ops
from nas.record import graph_to_json
from nas.seeds import resolve_seed

STARTED = 1777881600.0
"""Seconds since 1970 of 2026-05-04T08:00:00+00:00."""
READY_SECONDS, RELEASE_SECONDS, BEAT_SECONDS = 30.0, 60.0, 5.0
TEST_SECONDS = 5.0

CIFAR = Config(
    preset="cifar10",
    seed_architecture="residual-4-8-16",
    data=DataConfig(
        "cifar10", channels=3, size=32, classes=10, validation_examples=5000, augmentation="crop-flip"
    ),
    training=TrainingConfig("bf16", 512, 0.1, epochs=(2, 4), validate_every_examples=45000),
    limits=LimitsConfig(minutes=60.0),
    search=SearchConfig(bounds=BoundsConfig(max_operations=16, max_parameters=16, max_activations=8)),
)

IMAGENET = Config(
    preset="ranked",
    seed_architecture="residual-4-8-16",
    data=DataConfig("imagefolder", channels=3, size=224, classes=1000, validation_examples=50_000),
    training=TrainingConfig("bf16", 1024, 0.4, epochs=(2,), validate_every_examples=500_000),
    limits=LimitsConfig(minutes=60.0),
    search=CIFAR.search,
)


@dataclass(frozen=True)
class Machine:
    """What the run is pretended to have run on."""

    groups: int = 4
    devices_per_group: int = 2
    device: str = "NVIDIA A100-SXM4-80GB"
    device_ops_per_second: float = 6e10
    failing: float = 0.02
    """Share of the trials that fail."""
    lost_groups: tuple[int, ...] = ()
    """They die half-way."""
    slow: Mapping[int, float] = field(default_factory=dict)
    """Groups that have this share of the speed of the others."""
    watts: float | None = None
    """Of each device, recorded once a second; None: nothing is recorded."""
    settings: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """Of each rank, what it computed in."""
    random_seed: int = 1
    origin: Origin = Origin.MEASURED
    days: int = 0
    """After STARTED, at which it began."""

    @property
    def began(self) -> datetime:
        return datetime.fromtimestamp(STARTED, timezone.utc) + timedelta(days=self.days)


def write_run(directory: Path, config: Config = CIFAR, machine: Machine = Machine()) -> RunFiles:
    """A run directory with its journal and its configuration."""
    files = RunFiles(directory)
    directory.mkdir(parents=True)
    files.config.write_text(to_toml(config), encoding="utf-8")
    with files.journal.open("w", encoding="utf-8", buffering=1 << 20) as out:
        for line in chained(events(directory.name, config, machine)):
            out.write(line + "\n")
    if machine.watts is not None:
        record_power(files, machine.watts)
    return files


def record_power(files: RunFiles, watts: float) -> None:
    """What the hosts of a run would have recorded beside it, had each device drawn that all the time."""
    told = replay(read_journal(files.journal))
    files.telemetry_directory.mkdir()
    seconds = range(int(STARTED), int(STARTED + told.leg.end) + 3)
    for host in {event.ready.host for event in told.ranks}:
        names = [event.ready.device_id for event in told.ranks if event.ready.host == host]
        devices = [{"id": name, "power_watts": watts} for name in names]
        lines = [json.dumps({"wall_seconds": at, "host": {}, "devices": devices}) for at in seconds]
        files.telemetry(host).write_text("\n".join(lines) + "\n", encoding="utf-8")


def events(run_id: str, config: Config, machine: Machine) -> Iterator[tuple[float, Event]]:
    return _Cluster(run_id, config, machine).run()


@dataclass
class _Cluster:
    run_id: str
    config: Config
    machine: Machine
    replay: Replay = field(default_factory=Replay)
    written: list[tuple[float, Event]] = field(default_factory=list)
    best_of: dict[int, float] = field(default_factory=dict)
    """The error that each trial would reach, trained for ever."""

    def __post_init__(self) -> None:
        data = self.config.data
        self.rng = random.Random(self.machine.random_seed)
        self.seed = resolve_seed(
            self.config.seed_architecture, (data.channels, data.size, data.size), data.classes
        )
        self.jobs = Jobs.of(self.config, self.seed, self.replay)
        minutes = self.config.limits.minutes
        self.deadline = RELEASE_SECONDS + 60 * minutes if minutes else math.inf
        self.at_work = self.machine.groups
        self.manifest = manifest(self.config)
        self.now = 0.0

    def run(self) -> Iterator[tuple[float, Event]]:
        """All events in the order of their lines."""
        self._begin()
        order = itertools.count()
        waiting = [(RELEASE_SECONDS, next(order), self._beats())]
        waiting += [
            (RELEASE_SECONDS, next(order), self._group(group)) for group in range(self.machine.groups)
        ]
        while waiting:
            yield from self._flush()
            self.now, _, actor = heapq.heappop(waiting)
            at = next(actor, None)
            if at is not None:
                heapq.heappush(waiting, (at, next(order), actor))
        if math.isinf(self.deadline):
            self.write(LegEnded("trials", self.now))
        else:
            self.now = max(self.now, self.deadline)
            self.write(LegEnded("deadline", self.deadline))
        self.now += TEST_SECONDS
        if (best := self.replay.best) and best.error is not None:
            num = self.manifest["test_examples"]
            correct = round(num * (1 - 1.02 * best.error))
            self.write(Tested(Evaluated(best.number, Classified(num, correct), TEST_SECONDS)))
        yield from self._flush()

    def write(self, event: Event) -> None:
        self.replay.add(self.now, event)
        self.jobs.follow(event)
        self.written.append((self.now, event))

    def _flush(self) -> Iterator[tuple[float, Event]]:
        yield from self.written
        self.written.clear()

    def _begin(self) -> None:
        machine, size = self.machine, self.machine.devices_per_group
        groups = tuple(
            tuple(range(1 + group * size, 1 + (group + 1) * size)) for group in range(machine.groups)
        )
        graph = graph_to_json(self.seed)
        opened = Opened(VERSION, self.run_id, "0.1.0", code_hash(), self.config, graph, origin=machine.origin)
        self.write(opened)
        self.write(LegBegan(0, machine.began.isoformat(), ("aiperf-hpc", "run"), groups))
        ranks = [(group, rank, f"node{1 + group:04}") for group, ranks in enumerate(groups) for rank in ranks]
        self.now = READY_SECONDS
        for group, rank, host in ranks:
            self.write(RankReady(group, self._ready(rank, host), self.rng.gauss(0, 2e-3)))
        for _, rank, host in ranks:
            rate = self.rng.gauss(2400, 12)
            self.write(ControlMeasured(Control(rank, host, machine.device, 256, 100, 25600 / rate, rate)))
        self.now = RELEASE_SECONDS
        self.write(Released(None if math.isinf(self.deadline) else self.deadline))

    def _ready(self, rank: int, host: str) -> Ready:
        software = {
            "python": "3.11.7",
            "torch": "2.13.0",
            "cuda": "13.0",
            "driver": "580.65",
            "system": "Linux",
        }
        memory_gib = (peak := listed(self.machine.device)) and peak.memory_gib
        weights, wall = "5" * 64, self.machine.began.timestamp() + READY_SECONDS
        return Ready(
            rank,
            host,
            1000 + rank,
            self.machine.device,
            int(GIB * (memory_gib or 80)),
            software,
            code_hash(),
            self.manifest,
            weights,
            wall,
            READY_SECONDS,
            device_id="" if self.machine.watts is None else f"{rank:08x}",
            multiplies=dict.fromkeys(PRODUCTS, self.config.training.format),
            settings=self.machine.settings.get(rank, {}),
        )

    def _beats(self) -> Iterator[float]:
        while self.at_work and self.now + BEAT_SECONDS < self.deadline:
            yield self.now + BEAT_SECONDS
            self.write(Beat())

    def _group(self, group: int) -> Iterator[float]:
        yield from self._life(group)
        self.at_work -= 1

    def _life(self, group: int) -> Iterator[float]:
        """A trial after the other, the next one prepared beside it."""
        speed = self.rng.gauss(1, 0.01) * self.machine.devices_per_group * self.machine.device_ops_per_second
        speed *= self.machine.slow.get(group, 1.0)
        dies = math.inf
        if group in self.machine.lost_groups:
            dies = RELEASE_SECONDS + self.rng.uniform(0.3, 0.8) * 60 * self.config.limits.minutes
        job = self._dispatch(group)
        while job is not None:
            yield self.now + self.rng.uniform(0.01, 0.4)
            if self.now >= self.deadline:
                return
            self.write(Began(Started(job.trial.number, job.attempt, job.graph_key, 0.2), self.now))
            following = self._dispatch(group)
            yield from self._trained(job, speed, dies)
            if self.now >= dies:
                self.write(GroupLost(group, f"node{1 + group:04} does not answer any more"))
                return
            if self.now >= self.deadline - 1:
                return
            job = following

    def _dispatch(self, group: int) -> Dispatched | None:
        job = self.jobs.next(group)
        if job is not None:
            self.write(job)
        return job

    def _trained(self, job: Dispatched, speed: float, dies: float) -> Iterator[float]:
        trial, examples = job.trial, self.manifest["training_examples"]
        planned = plan(trial, self.config.training, examples)
        validation = self.manifest["validation_examples"]
        step = (Ops(*job.forward) + Ops(*job.backward)).price(OPS) * trial.hyper.batch_size / speed
        validate = Ops(*job.evaluate).price(OPS) * validation / speed
        fails_after = self.rng.randrange(planned.steps) if self.rng.random() < self.machine.failing else None
        limit, done, index, state = self._error(job), 0, 0, State.COMPLETE
        while done < planned.steps and state is State.COMPLETE:
            steps = min(planned.segment_steps, planned.steps - done)
            room = int(min(1e9, (self.deadline - 1.6 * validate - self.now) / step))
            if fails_after is not None and done + steps > fails_after:
                yield self.now + step * (fails_after - done)
                return self._end(job, State.FAILED, "rank 1: the loss is not finite")
            if room < steps:
                steps, state = room, State.STOPPED
            if steps < 1:
                break
            seconds = steps * step
            yield self.now + seconds
            if self.now >= dies:
                return None
            loss = 2.3 * math.exp(-2 * done / planned.steps)
            examples = steps * trial.hyper.batch_size
            block = StepBlock(trial.number, job.attempt, index, steps, examples, seconds, loss)
            self.write(Stepped(block, self.now))
            yield self.now + validate
            done += steps
            error = limit + (0.9 - limit) * math.exp(-5 * done / planned.steps)
            correct = min(validation, max(0, round(validation * (1 - error))))
            closed = Segment(
                trial.number,
                job.attempt,
                index,
                steps,
                steps * trial.hyper.batch_size,
                seconds,
                Classified(validation, correct),
                validate,
            )
            self.write(Closed(closed, self.now))
            index += 1
        return self._end(job, state, "" if state is State.COMPLETE else "deadline")

    def _end(self, job: Dispatched, state: State, reason: str) -> None:
        weights = f"{job.trial.number:064x}" if state is not State.FAILED else ""
        self.write(Ended(Finished(job.trial.number, job.attempt, state, reason, weights=weights), self.now))

    def _error(self, job: Dispatched) -> float:
        """Falls along a lineage, and with the logarithm of the operations."""
        number, parent = job.trial.number, job.trial.parent
        start = 0.30 if parent is None else self.best_of[parent]
        self.best_of[number] = max(0.004, start * math.exp(self.rng.gauss(-0.02, 0.06)))
        return self.best_of[number]


def manifest(config: Config) -> dict[str, Any]:
    data = config.data
    official = {"imagefolder": 1281167}.get(data.name, 50000)
    parts = {
        "training": data.training_examples or official - data.validation_examples,
        "validation": data.validation_examples,
        "test": {"imagefolder": 50000}.get(data.name, data.test_examples or 10000),
    }
    found: dict[str, Any] = {
        "name": data.name,
        "synthetic": data.name == "synthetic",
        "channels": data.channels,
        "size": data.size,
        "classes": data.classes,
        "sha256": "d" * 64,
        "official_training_examples": official,
    }
    for name, num in parts.items():
        found[f"{name}_examples"] = num
        found[f"{name}_examples_per_class"] = [num // data.classes, -(-num // data.classes)]
    return found | {"augmentation": data.augmentation}


def resized(config: Config, minutes: float) -> Config:
    return replace(config, limits=replace(config.limits, minutes=minutes))


def graph_of(config: Config) -> Graph:
    data = config.data
    return resolve_seed(config.seed_architecture, (data.channels, data.size, data.size), data.classes)


def study(folder: Path, machine: Machine, minutes: float = 2.0) -> list[Judged]:
    """Three runs of one configuration, each with a random seed of its own."""
    return [
        examine(
            write_run(
                folder / f"run-{seed}",
                replace(resized(CIFAR, minutes), random_seed=seed),
                replace(machine, random_seed=seed),
            )
        )
        for seed in (1, 2, 3)
    ]
