"""Journals of runs that never happened, made by the real search, the real counter and the real writer.

Groups train in simulated time; errors fall with examples, and differ from trial to trial. So everything that
a rule can check is consistent, unless a test makes it otherwise. A `Scene` is for the rules: what happens is
stated, and each block of steps is a line. A `Machine` is for readings and pages: it draws what happens.
One file, since what it makes must be consistent as a whole.
"""

from __future__ import annotations

import heapq
import json
import math
import random
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta, timezone
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from aiperf.config import (
    BoundsConfig,
    Config,
    LimitsConfig,
    SearchConfig,
    TrainingConfig,
    to_toml,
    with_overrides,
)
from aiperf.hardware.peak import GIB, listed
from aiperf.host.code import code_hash
from aiperf.journal.events import (
    Beat,
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
from aiperf.journal.file import RULES_VERSION, VERSION, chained, read_journal
from aiperf.journal.names import fingerprint
from aiperf.journal.replay import Replay, replay
from aiperf.journal.run_files import RunFiles
from aiperf.journal.writer import JournalWriter
from aiperf.proposing.jobs import Jobs
from aiperf.proposing.plan import plan
from aiperf.tasks.images.data import ImageData
from aiperf.tasks.images.known_sets import DIGITS
from aiperf.tasks.images.tally import Classified
from aiperf.wire.formats import PRODUCTS
from aiperf.wire.reports import NOTHING_KEPT, Ceiling, Control, Evaluated, Finished, Rate, Ready, Started
from aiperf.wire.trial import Segment, State, StepBlock
from nas.graph import Graph
from nas.ops import OPS, Ops
from nas.record import graph_to_json
from nas.seeds import resolve_seed

Timed = tuple[float, Event]

OPS_PER_SECOND = 20e9  # of a device: a step of the smallest seed takes some hundredths of a second
BLOCK_STEPS = 15
NEWS_SECONDS = 0.001  # from the end of work to its line
RELEASE = 12.0

STARTED = 1777881600.0
"""Seconds since 1970 of 2026-05-04T08:00:00+00:00."""
READY_SECONDS, RELEASE_SECONDS, BEAT_SECONDS = 30.0, 60.0, 5.0
TEST_SECONDS = 5.0
SOFTWARE = {"python": "3.11.7", "torch": "2.13.0", "cuda": "13.0", "driver": "580.65", "system": "Linux"}

CIFAR = Config(
    preset="cifar10",
    seed_architecture="residual-4-8-16",
    data=ImageData(
        "cifar10", channels=3, size=32, classes=10, validation_examples=5000, augmentation="crop-flip"
    ),
    training=TrainingConfig("bf16", 512, 0.1, epochs=(2, 4), validate_every_examples=45000),
    limits=LimitsConfig(minutes=60.0),
    search=SearchConfig(bounds=BoundsConfig(max_operations=16, max_parameters=16, max_activations=8)),
)

IMAGENET = replace(
    CIFAR,
    preset="ranked",
    data=ImageData("imagefolder", channels=3, size=224, classes=1000, validation_examples=50_000),
    training=TrainingConfig("bf16", 1024, 0.4, epochs=(2,), validate_every_examples=500_000),
)


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
    """Trials whose first attempt runs out of memory."""
    lost: tuple[tuple[int, float], ...] = ()
    """Groups that die, and when; they come back two seconds later."""
    killed_at: float | None = None
    """When the first leg is cut off; a second one follows."""
    changes: tuple[tuple[str, Any], ...] = ()
    """Changes of the configuration, by dotted key."""

    @property
    def config(self) -> Config:
        plain = Config(
            preset="simulated",
            seed_architecture="residual-4-8-16",
            data=ImageData("digits", channels=1, size=32, classes=10, validation_examples=400),
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


@dataclass(frozen=True)
class Machine:
    """What the run is pretended to have run on."""

    groups: int = 4
    devices_per_group: int = 2
    spread: bool = False
    """Whether each rank of a group is on another host."""
    device: str = "NVIDIA A100-SXM4-80GB"
    device_ops_per_second: float = 6e10
    failing: float = 0.02
    """Share of the trials that fail."""
    lost_groups: tuple[int, ...] = ()
    """Groups that die half-way."""
    slow: Mapping[int, float] = field(default_factory=dict)
    """Groups that have this share of the speed of the others."""
    watts: float | None = None
    """Power of each device, recorded once per second; None: nothing is recorded."""
    settings: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """Settings of each rank's environment."""
    random_seed: int = 1
    origin: Origin = Origin.MEASURED
    days: int = 0
    """Days from STARTED until the run began."""


DATA: Mapping[str, Any] = {
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


READY = Ready(
    rank=1,
    host="node1",
    pid=1,
    device="a device",
    memory_bytes=1,
    software={},
    code_hash="code",
    data={"training_examples": 200, "validation_examples": 400},
    initial_weights="weights",
    wall_seconds=0.0,
    seconds=0.1,
    multiplies={"matrix product": "bf16", "convolution": "bf16"},
)


def told(scene: Scene = Scene()) -> list[Timed]:
    """The lines of such a run, in order."""
    return list(_simulated(scene))


@cache  # the same few runs are made many times in a process
def _simulated(scene: Scene) -> list[Timed]:
    return Simulation(scene).run()


def ready_alone(ranks: Iterable[int], leg: int = 0, **changes: Any) -> list[Timed]:
    """The lines of a leg up to the last rank that is ready, each rank a group on a host of its own; and that
    of its run, with changes."""
    ranks = tuple(ranks)
    _, opened = told(Scene(minutes=0.05))[0]
    devices = [replace(READY, rank=rank, host=f"node{rank}") for rank in ranks]
    return [
        *([] if leg else [(0.0, replace(opened, **changes))]),
        (0.0, LegBegan(leg, "2026-01-01T00:00:00.000+00:00", (), tuple((rank,) for rank in ranks))),
        *((1.0, RankReady(group, ready, 0.0)) for group, ready in enumerate(devices)),
    ]


def of_origin(timed: list[Timed], origin: Origin) -> list[Timed]:
    """The same lines of a run that says where its figures come from."""
    t, opened = timed[0]
    assert isinstance(opened, Opened)
    return [(t, replace(opened, origin=origin)), *timed[1:]]


PARTS = {
    RankReady: "ready",
    CeilingMeasured: "ceiling",
    ControlMeasured: "control",
    Began: "started",
    Stepped: "block",
    Closed: "segment",
    Ended: "finished",
    Tested: "evaluated",
}


def part(event: Event) -> Any:
    """What a group said, in the event that tells it."""
    return getattr(event, PARTS[type(event)])


def within(event: Any, **changes: Any) -> Any:
    """The event with something else said by the group."""
    return replace(event, **{PARTS[type(event)]: replace(part(event), **changes)})


def replayed(timed: Iterable[Timed]) -> Replay:
    run = Replay()
    for t, event in timed:
        run.add(t, event)
    return run


def keeping(timed: list[Timed]) -> list[Timed]:
    """The same, where each trial keeps the network of the validation that is its best one there."""
    run = replayed((t, within(e, kept=None) if isinstance(e, Ended) else e) for t, e in timed)
    best = {
        (attempt.trial.number, attempt.number): attempt.best_validation.segment.index
        for attempt in run.attempts
        if attempt.best_validation
    }

    def kept(event: Event) -> Any:
        if not isinstance(event, Ended) or event.finished.kept is None:
            return event
        return within(event, kept=best.get((event.finished.trial, event.finished.attempt), NOTHING_KEPT))

    return [(t, kept(event)) for t, event in timed]


def write_run(
    directory: Path, run: list[Timed] | Config = CIFAR, machine: Machine = Machine(), salt: str = ""
) -> RunFiles:
    """A run directory: of these lines, with the logs that the ranks would have written; or of a run of this
    configuration on that machine, with what its hosts would have recorded. With a salt its journal hides
    names."""
    files = RunFiles(directory)
    directory.mkdir(parents=True, exist_ok=True)
    lines = events(directory.name, run, machine) if isinstance(run, Config) else run
    if salt:
        write_hidden(files, lines, salt)
    else:
        with files.journal.open("x", encoding="utf-8", buffering=1 << 20) as out:
            out.writelines(line + "\n" for line in chained(lines))
    if not isinstance(run, Config):
        write_witnesses(files, run)
        return files
    files.config.write_text(to_toml(run), encoding="utf-8")
    if machine.watts is not None:
        record_power(files, machine.watts)
    return files


def write_hidden(files: RunFiles, timed: Iterable[Timed], salt: str) -> None:
    with JournalWriter.begin(files, salt) as journal:
        for t, event in timed:
            first = replace(event, salt_sha256=fingerprint(salt)) if isinstance(event, Opened) else event
            journal.write(t, first)


def events(run_id: str, config: Config, machine: Machine) -> Iterator[Timed]:
    return OnMachine(run_id, config, machine).lines()


def record_power(files: RunFiles, watts: float) -> None:
    """What the hosts of a run would have recorded beside it, had each device drawn that all the time."""
    told = replay(read_journal(files.journal))
    files.telemetry_directory.mkdir()
    seconds = range(int(STARTED), int(STARTED + told.leg.end) + 3)
    for host in {event.ready.host for event in told.ranks}:
        names = [event.ready.device_id for event in told.ranks if event.ready.host == host]
        devices = [{"id": files.hidden("device", name), "power_watts": watts} for name in names]
        lines = [json.dumps({"wall_seconds": at, "host": {}, "devices": devices}) for at in seconds]
        files.telemetry(host).write_text("\n".join(lines) + "\n", encoding="utf-8")


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


def write_witnesses(files: RunFiles, timed: list[Timed]) -> list[Timed]:
    """Every rank of a group writes its share of what the group did; the lines with the hashes of that."""
    logs: dict[Path, list[str]] = {}
    of_group: dict[int, list[Path]] = {}
    group_of: dict[tuple[int, int], int] = {}
    hashed: list[Timed] = []
    for t, event in timed:
        if isinstance(event, RankReady):
            path = files.witness(event.ready.host, event.ready.rank)
            logs.setdefault(path, [])
            if path not in of_group.setdefault(event.group, []):
                of_group[event.group].append(path)
        elif isinstance(event, Dispatched):
            group_of[event.trial.number, event.attempt] = event.group
        elif isinstance(event, Stepped | Closed):
            group = of_group[group_of[part(event).trial, part(event).attempt]]
            for place, path in enumerate(group):
                logs[path].append(log_line(event, place, len(group)))
            if isinstance(event, Closed):
                digests = [sha256("".join(logs[path]).encode()).digest() for path in group]
                event = replace(event, logs=sha256(b"".join(digests)).hexdigest())
        hashed.append((t, event))
    shutil.rmtree(files.logs_directory, ignore_errors=True)
    files.logs_directory.mkdir(parents=True)
    for path, lines in logs.items():
        path.write_text("".join(lines), encoding="utf-8")
    return hashed


def log_line(event: Stepped | Closed, place: int, num_ranks: int) -> str:
    """What one rank of the group writes, as `StepLog` does, of its share."""

    def share(examples: int) -> int:
        return examples * (place + 1) // num_ranks - examples * place // num_ranks

    work = part(event)
    if isinstance(event, Stepped):
        index, found = work.segment, {"steps": work.steps, "examples": share(work.examples)}
    else:
        index, found = work.index, {name: share(num) for name, num in asdict(work.tally).items()}
    return json.dumps({"trial": work.trial, "attempt": work.attempt, "segment": index, **found}) + "\n"


class Simulation:
    """A run of a scene. Groups are coroutines on one clock: each yields the times at which it has something
    to report, with that; a test may override what happens."""

    ready_seconds, release_seconds = 3.0, RELEASE
    block_steps: float = BLOCK_STEPS
    closing_share = 1.5
    """Time reserved for the closing validation, in validations."""
    test_seconds, test_error = 1.0, 1.0
    """From the end of the last leg; the error at the test ÷ that of the best validation."""

    def __init__(self, scene: Scene, config: Config | None = None, data: Mapping[str, Any] = DATA) -> None:
        self.scene, self.config, self.manifest = scene, config or scene.config, data
        self.seed = graph_of(self.config)
        self.replay = Replay()
        self.jobs = Jobs.of(self.config, self.seed, self.replay)
        self.now = 0.0
        self.assigned: list[deque[Dispatched]] = []
        self.deaths = dict(scene.lost)
        self.began_at = 0.0
        """Time of day [s]."""
        self._written: list[Timed] = []

    def run(self) -> list[Timed]:
        return list(self.lines())

    def lines(self) -> Iterator[Timed]:
        """All lines in order, each as soon as it is written."""
        self.write(0.0, self.opened())
        if self.scene.killed_at is not None:
            yield from self.leg(0, self.scene.killed_at)
            self.deaths = {}
        yield from self.leg(self.replay.num_legs, math.inf)

    def opened(self) -> Opened:
        graph = graph_to_json(self.seed)
        return Opened(VERSION, "simulated", "0.1.0", code_hash(), self.config, graph, rules=RULES_VERSION)

    def write(self, t: float, event: Event) -> None:
        self.now = max(self.now, t)
        self._written.append((self.now, event))
        self.replay.add(self.now, event)
        if not isinstance(event, Opened):
            self.jobs.follow(event)

    def written(self) -> Iterator[Timed]:
        """What was written since the last call."""
        yield from self._written
        self._written.clear()

    def leg(self, index: int, killed_at: float) -> Iterator[Timed]:
        """One leg, up to its end or to where it is cut off."""
        scene, width = self.scene, self.scene.ranks_of_a_group
        began = self.began(index)
        self.now, self.began_at = 0.0, began.timestamp()
        self.groups = tuple(tuple(range(1 + n * width, 1 + (n + 1) * width)) for n in range(scene.groups))
        left = scene.minutes * 60 - self.replay.span_seconds if scene.minutes else math.inf
        self.write(0.0, LegBegan(index, began.isoformat(), ("aiperf-hpc", "run"), self.groups))
        self.measure()
        self.deadline = self.release_seconds + left
        self.write(self.release_seconds, Released(None if math.isinf(left) else self.deadline))
        self.assigned = [deque() for _ in self.groups]
        self.queue: list[tuple[float, int, Event]] = []
        self.actors = self.start()
        for actor in self.actors:
            self.resume(actor)
        while self.queue:
            yield from self.written()
            t, group, event = heapq.heappop(self.queue)
            if t > killed_at:
                return
            if t > self.deaths.get(group, math.inf):
                self.die(group, self.deaths.pop(group))
            else:
                self.write(t + NEWS_SECONDS, event)
                if isinstance(event, Ended):
                    self.assigned[group].popleft()
            self.resume(group)
        self.end()
        yield from self.written()

    def began(self, leg: int) -> datetime:
        return datetime(2026, 1, 1, leg, tzinfo=timezone.utc)

    def measure(self) -> None:
        """What is written before the clock starts."""
        self.all_ready(self.ready_seconds, *range(len(self.groups)))
        device, ranks = self.scene.device, [rank for group in self.groups for rank in group]
        for rank in ranks:
            rates = Rate(7.5e14 + rank, 7.4e14 + rank, 0.004), Rate(4.1e12 + rank, 4.0e12 + rank, 0.002)
            self.write(5.0, CeilingMeasured(Ceiling(rank, f"node{rank}", device, "bf16", 8192, *rates)))
        for rank in ranks:
            rate = 100.0 + rank
            self.write(8.0, ControlMeasured(Control(rank, f"node{rank}", device, 256, 20, 5120 / rate, rate)))

    def all_ready(self, t: float, *groups: int) -> None:
        for group in groups:
            for rank in self.groups[group]:
                self.write(t, self.ready(group, rank, t))

    def ready(self, group: int, rank: int, t: float) -> RankReady:
        ready = Ready(
            rank=rank,
            host=f"node{rank}",
            pid=1000 + rank,
            device=self.scene.device,
            memory_bytes=150 * 10**9,
            software={"torch": "2.13.0"},
            code_hash=code_hash(),
            data=self.manifest,
            initial_weights="1n1t",
            wall_seconds=self.began_at + t + 0.01 * rank,
            seconds=1.5,
            multiplies=dict.fromkeys(PRODUCTS, self.config.training.format),
        )
        return RankReady(group, ready, 0.01 * rank)

    def start(self) -> dict[int, Iterator[Timed]]:
        return {group: self.work(group, self.release_seconds) for group in range(len(self.groups))}

    def resume(self, group: int) -> None:
        self.fill(group)
        if (entry := next(self.actors[group], None)) is not None:
            heapq.heappush(self.queue, (entry[0], group, entry[1]))

    def die(self, group: int, died: float) -> None:
        """It comes back two seconds later."""
        self.write(died, GroupLost(group, "the worker was killed by signal 9"))
        self.all_ready(died + 2.0, group)
        self.assigned[group].clear()
        self.actors[group] = self.work(group, died + 2.0)

    def end(self) -> None:
        last = max((v.end for a in self.replay.attempts for v in a.validations), default=self.release_seconds)
        end = last if math.isinf(self.deadline) else self.deadline
        self.write(end + 0.01, LegEnded("trials" if math.isinf(self.deadline) else "deadline", end))
        best = self.replay.best
        if best is not None and best.error is not None:
            of = self.manifest["test_examples"]
            correct = round(of * (1 - self.test_error * best.error))
            evaluated = Evaluated(best.number, Classified(of, correct), 0.9 * self.test_seconds)
            self.write(self.now + self.test_seconds, Tested(evaluated))

    def fill(self, group: int) -> None:
        """The next trial is prepared while one runs."""
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
            t += self.pause()
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

    def pause(self) -> float:
        """Between two trials."""
        return 0.01

    def speed(self, group: int) -> float:
        """Operations per second."""
        return OPS_PER_SECOND

    def errors(self, job: Dispatched, planned: int) -> Callable[[int], float]:
        """The error of the trial after this many of its planned steps."""
        chance, batch = random.Random(job.trial.number), job.trial.hyper.batch_size
        floor = 0.05 + 0.1 * chance.random()
        return lambda done: floor + 0.6 * 0.5 ** (done * batch / 2000) + 0.02 * chance.random()

    def fails_after(self, planned: int) -> float:
        """The step of a trial at which it fails."""
        return math.inf

    def weights(self, trial: int) -> str:
        """The hash of its file."""
        return ""

    def attempt(self, job: Dispatched, t: float) -> Iterator[Timed]:
        trial, rate = job.trial, self.speed(job.group)
        number, batch = trial.number, trial.hyper.batch_size
        validated = self.manifest["validation_examples"]
        step_seconds = batch * (_price(job.forward) + _price(job.backward)) / rate
        validate_seconds = validated * _price(job.evaluate) / rate
        planned = plan(trial, self.config.training, self.manifest["training_examples"])
        errors, fails = self.errors(job, planned.steps), self.fails_after(planned.steps)
        done, index, lowest, kept = 0, 0, math.inf, NOTHING_KEPT

        def ended(state: State, reason: str = "") -> Timed:
            finished = Finished(number, job.attempt, state, reason)
            if state is not State.FAILED:
                finished = replace(finished, kept=kept, weights=self.weights(number))
            return t, Ended(finished, t)

        while done < planned.steps:
            steps, seconds, halted = 0, 0.0, False
            until = min(planned.segment_steps, planned.steps - done)
            while steps < until and not halted:
                room = (self.deadline - self.closing_share * validate_seconds - t) / step_seconds
                whole = min(self.block_steps, until - steps)
                block = int(min(whole, max(0.0, room)))
                halted = block < whole
                if done + steps + block > fails:
                    t += (fails - done - steps) * step_seconds
                    yield ended(State.FAILED, "rank 1: the loss is not finite")
                    return
                if block:
                    t += block * step_seconds
                    steps, seconds = steps + block, seconds + block * step_seconds
                    examples, spent = block * batch, block * step_seconds
                    yield t, Stepped(StepBlock(number, job.attempt, index, block, examples, spent, 1.5), t)
            if not steps:
                yield ended(State.STOPPED, "the run ended")
                return
            done, t = done + steps, t + validate_seconds
            tally = Classified(validated, validated - round(validated * errors(done)))
            segment = Segment(
                number, job.attempt, index, steps, steps * batch, seconds, tally, validate_seconds
            )
            if segment.unbounded < lowest and t <= self.deadline:
                lowest, kept = segment.unbounded, index
            yield t, Closed(segment, t)
            index += 1
            if halted and done < planned.steps:
                yield ended(State.STOPPED, "the run ended")
                return
        yield ended(State.COMPLETE)


class OnMachine(Simulation):
    """A run on a machine: speeds, errors and failures are drawn."""

    ready_seconds, release_seconds = READY_SECONDS, RELEASE_SECONDS
    block_steps = math.inf
    test_seconds, test_error = TEST_SECONDS, 1.02

    def __init__(self, run_id: str, config: Config, machine: Machine) -> None:
        self.run_id, self.machine, self.rng = run_id, machine, random.Random(machine.random_seed)
        span = 60 * config.limits.minutes
        lost = tuple((n, RELEASE_SECONDS + self.rng.uniform(0.3, 0.8) * span) for n in machine.lost_groups)
        size = machine.groups, machine.devices_per_group
        super().__init__(
            Scene(*size, config.limits.minutes, device=machine.device, lost=lost), config, manifest(config)
        )
        whole = machine.devices_per_group * machine.device_ops_per_second
        self.speeds = [
            self.rng.gauss(1, 0.01) * whole * machine.slow.get(group, 1.0) for group in range(machine.groups)
        ]
        self.alive = set(range(machine.groups))
        self.best_of: dict[int, float] = {}
        """The error that each trial would reach, trained for ever."""

    def opened(self) -> Opened:
        return replace(super().opened(), run_id=self.run_id, origin=self.machine.origin)

    def began(self, leg: int) -> datetime:
        return datetime.fromtimestamp(STARTED, timezone.utc) + timedelta(days=self.machine.days)

    def measure(self) -> None:
        self.all_ready(self.ready_seconds, *self.alive)
        for event in list(self.replay.ranks):
            rate, rank = self.rng.gauss(2400, 12), event.ready.rank
            control = Control(rank, event.ready.host, self.machine.device, 256, 100, 25600 / rate, rate)
            self.write(self.now, ControlMeasured(control))

    def ready(self, group: int, rank: int, t: float) -> RankReady:
        peak, found = listed(self.machine.device), super().ready(group, rank, t)
        number = (group + self.groups[group].index(rank) * self.machine.spread) % len(self.groups)
        ready = replace(
            found.ready,
            host=f"node{1 + number:04}",
            memory_bytes=int(GIB * ((peak and peak.memory_gib) or 80)),
            software=SOFTWARE,
            initial_weights="5" * 64,
            wall_seconds=self.began_at + t,
            seconds=self.ready_seconds,
            device_id="" if self.machine.watts is None else f"{rank:08x}",
            settings=self.machine.settings.get(rank, {}),
        )
        return RankReady(group, ready, self.rng.gauss(0, 2e-3))

    def start(self) -> dict[int, Iterator[Timed]]:
        return {**super().start(), -1: self.beats(self.release_seconds)}

    def beats(self, t: float) -> Iterator[Timed]:
        while self.queue and (t := t + BEAT_SECONDS) < self.deadline:
            yield t, Beat()

    def fill(self, group: int) -> None:
        if group in self.alive:
            super().fill(group)

    def die(self, group: int, died: float) -> None:
        self.write(died, GroupLost(group, f"node{1 + group:04} does not answer any more"))
        self.alive.remove(group)
        self.actors[group] = iter(())

    def pause(self) -> float:
        return self.rng.uniform(0.01, 0.4)

    def speed(self, group: int) -> float:
        return self.speeds[group]

    def errors(self, job: Dispatched, planned: int) -> Callable[[int], float]:
        """Falls along a lineage, and with the logarithm of the operations."""
        number, parent = job.trial.number, job.trial.parent
        first = 0.30 if parent is None else self.best_of[parent]
        limit = self.best_of[number] = max(0.004, first * math.exp(self.rng.gauss(-0.02, 0.06)))
        return lambda done: limit + (0.9 - limit) * math.exp(-5 * done / planned)

    def fails_after(self, planned: int) -> float:
        return self.rng.randrange(planned) if self.rng.random() < self.machine.failing else math.inf

    def weights(self, trial: int) -> str:
        return f"{trial:064x}"


def _price(vector: tuple[int, ...]) -> int:
    return Ops(*vector).price(OPS)
