"""What the master costs: its CPU time and its journal, whatever the number of groups.

    python -m benchmarks.master [--groups 64,512,4096] [--ranks 1] [--minutes 5] [--profile steady]

The real master, search, replay and journal run on a virtual clock, against groups that keep the protocol and
train nothing; every message is packed and unpacked. The time of the groups themselves is not counted. Four
runs: `steady` has trials of four minutes that tell of their steps, in `burst` all trials end at once,
`sustained` has trials of a second in 512 groups, and in `offered` the clock goes on while the master works:
512 groups offer 100 outcomes a second, and each waits for those before it.
"""

from __future__ import annotations

import argparse
import cProfile
import heapq
import pstats
import sys
import tempfile
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import quantiles
from time import process_time

from aiperf.config import Config, load_preset, with_overrides
from aiperf.files import RunFiles
from aiperf.journal.events import TERMINATED, Dispatched, Opened
from aiperf.journal.file import VERSION, JournalWriter
from aiperf.journal.replay import Replay
from aiperf.proposing.jobs import Jobs
from aiperf.ranks.world import Gone
from aiperf.run.ledger import Ledger
from aiperf.run.master import Audience, Master
from aiperf.trial import Segment, State, StepBlock
from aiperf.wire import messages
from aiperf.wire.messages import FromGroup, ToGroup, pack, unpack
from nas.record import graph_to_json
from nas.seeds import resolve_seed
from tests.aiperf.groups import READY

RATE = messages.Rate(1e14, 9e13, 0.01)
DATA = {**READY.data, "training_examples": 1_231_167, "validation_examples": 50_000}
FILLED_SECONDS = 2.0
"""After the release, when all groups have their trials. What follows counts, and the start by itself."""
LONG, EQUAL, SHORT = 240.0, 60.0, 1.0
"""Seconds of a trial: about so many, exactly so many, about so many."""
CLOSING_SECONDS = 1.0
"""From the last step of a trial to its outcome."""
OFFERED = 100.0
"""Outcomes a second, of all groups."""


@dataclass
class Pretender:
    """A group that pretends: what it was assigned, and the steps that it has told of."""

    ranks: tuple[int, ...]
    assigned: deque[messages.Assign] = field(default_factory=deque)
    running: messages.Assign | None = None
    halted: bool = False


@dataclass
class Cost:
    """CPU seconds of the master while it dealt with messages of one kind, or waited."""

    seconds: float = 0.0
    messages: int = 0


class Machine:
    """A world on a virtual clock, which goes on while the master works if it `counts` that."""

    def __init__(
        self, groups: int, ranks: int, trial_seconds: Callable[[int], float], files: RunFiles
    ) -> None:
        self.groups = tuple(tuple(range(1 + ranks * g, 1 + ranks * (g + 1))) for g in range(groups))
        self.trial_seconds, self.files = trial_seconds, files
        self.costs: defaultdict[str, Cost] = defaultdict(Cost)
        self.start_seconds = 0.0
        """CPU of the master until the clock of the leg starts."""
        self.proposals = Cost()
        self.block_seconds = 2.0
        self.filled = False
        self.counts = False
        self.delays: list[float] = []
        """From an outcome to the candidate that follows it [s]."""
        self._outcomes: defaultdict[int, deque[float]] = defaultdict(deque)
        self._each = [Pretender(each) for each in self.groups]
        self._now, self._kind, self._since = 0.0, "", process_time()
        self._coming: list[tuple[float, int, int, FromGroup, Callable[[], None]]] = []
        self._said = 0

    def monotonic(self) -> float:
        return self._now + (process_time() - self._since if self.counts else 0.0)

    def wall(self) -> float:
        return 1.7e9 + self.monotonic()

    def start(self) -> None:
        """From now on the master's time counts."""
        self.costs.clear()
        self.proposals = Cost()
        self.delays.clear()
        self._kind, self._since = "start", process_time()

    def receive(self, seconds: float) -> tuple[int, FromGroup | Gone] | None:
        self._now = self.monotonic()
        cost = self.costs[self._kind]
        cost.seconds += process_time() - self._since
        cost.messages += 1
        if not self._coming or self._coming[0][0] > self._now + seconds:
            self._now += seconds
            self._kind, self._since = "wait", process_time()
            return None
        at, _, group, message, then = heapq.heappop(self._coming)
        self._now = max(self._now, at)
        then()
        if isinstance(message, messages.Finished):
            self._outcomes[group].append(at)
        data = pack(message)
        self._kind, self._since = type(message).__name__, process_time()
        return group, unpack(FromGroup, data)

    def send(self, group: int, message: ToGroup) -> None:
        data = pack(message)
        if isinstance(message, messages.Assign) and self._outcomes[group]:
            self.delays.append(self.monotonic() - self._outcomes[group].popleft())
        began = process_time()
        self._obey(group, unpack(ToGroup, data))
        self._since += process_time() - began

    def send_all(self, message: ToGroup) -> None:
        pack(message)
        began = process_time()
        for group in range(len(self.groups)):
            self._obey(group, message)
        self._since += process_time() - began

    def propose(self, number: int, group: int, made: Callable[[int, int], Dispatched]) -> Dispatched:
        began = process_time()
        job = made(number, group)
        took = process_time() - began
        self.proposals = Cost(self.proposals.seconds + took, self.proposals.messages + 1)
        self._since += took
        self._now += took if self.counts else 0.0
        return job

    def restart(self, group: int) -> bool:
        return False

    def close(self) -> None:
        pass

    def _say(
        self, after: float, group: int, message: FromGroup, then: Callable[[], None] = lambda: None
    ) -> None:
        self._said += 1
        heapq.heappush(self._coming, (self._now + after, self._said, group, message, then))

    def _obey(self, index: int, message: ToGroup) -> None:
        group = self._each[index]
        if isinstance(message, messages.Setup):
            for rank in group.ranks:
                host = f"node{index:04}"
                wall = self.wall() + 1.0
                self._say(1.0, index, replace(READY, rank=rank, host=host, data=DATA, wall_seconds=wall))
        elif isinstance(message, messages.MeasureCeiling):
            for rank in group.ranks:
                found = messages.Ceiling(
                    rank, f"node{index:04}", "a device", "bf16", 2048, RATE, RATE, seed=RATE
                )
                self._say(1.0, index, found)
        elif isinstance(message, messages.MeasureControl):
            for rank in group.ranks:
                control = messages.Control(rank, f"node{index:04}", "a device", 8, 5, 1.0, 40.0)
                self._say(1.0, index, control)
        elif isinstance(message, messages.Release):
            self.block_seconds = message.block_seconds
        elif isinstance(message, messages.Assign):
            group.assigned.append(message)
            if group.running is None:
                self._begin(index)
        elif isinstance(message, messages.Stop):
            group.halted = True
            while group.running or group.assigned:
                self._end(index, group.running or group.assigned.popleft(), State.WAITING)

    def _begin(self, index: int) -> None:
        group = self._each[index]
        job = group.running = group.assigned.popleft() if group.assigned else None
        if job is not None:
            number = job.trial.number
            self._say(0.001, index, messages.Started(number, job.attempt, "0123456789abcdef" * 4, 0.4))
            self._step(index, job, self.trial_seconds(number), 0)

    def _step(self, index: int, job: messages.Assign, left: float, blocks: int) -> None:
        """The next block, or the validation and the end."""
        number, attempt, seconds = job.trial.number, job.attempt, min(self.block_seconds, left)
        rest = left - seconds

        def then() -> None:
            if self._each[index].running is not job:
                return
            if rest > 0:
                self._step(index, job, rest, blocks + 1)
            else:
                steps = 7 * (blocks + 1)
                right = 20_000 + number * 7919 % 20_000
                closed = Segment(number, attempt, 0, steps, 1024 * steps, 230.0, right, 50_000, 5.3)
                self._say(
                    CLOSING_SECONDS / 2, index, messages.Validated(closed, 0.0012, "0123456789abcdef" * 4)
                )
                self._say(
                    CLOSING_SECONDS,
                    index,
                    self._finished(job, State.COMPLETE),
                    lambda: self._ended(index, job),
                )

        block = StepBlock(number, attempt, 0, 7, 7168, seconds * 0.9876543, 6.9077552789)
        self._say(seconds, index, messages.Steps(block, 0.0001234), then)

    def _ended(self, index: int, job: messages.Assign) -> None:
        if self._each[index].running is job:
            self.files.weights(job.trial.number).touch()
            self._begin(index)

    def _end(self, index: int, job: messages.Assign, state: State) -> None:
        group = self._each[index]
        if job is group.running:
            group.running, state = None, State.STOPPED
        self._say(0.1, index, self._finished(job, state))

    def _finished(self, job: messages.Assign, state: State) -> messages.Finished:
        weights = "0123456789abcdef" * 4
        return messages.Finished(job.trial.number, job.attempt, state, "", weights=weights, age_seconds=0.25)


@dataclass(frozen=True)
class Measured:
    """One run of the master."""

    machine: Machine
    span_seconds: float
    trials: int
    bytes_of: Counter[str]
    """Of the journal, by the type of the line."""

    def microseconds(self, *kinds: str) -> float:
        """CPU of the master a message of the first kind; what it did for the others is shared out."""
        costs = [self.machine.costs[kind] for kind in kinds]
        return 1e6 * sum(cost.seconds for cost in costs) / max(1, costs[0].messages)


def measured(
    groups: int,
    ranks: int,
    span_seconds: float,
    trial_seconds: Callable[[int], float],
    profile: bool,
    counts: bool = False,
) -> Measured:
    with tempfile.TemporaryDirectory() as scratch:
        files = RunFiles(Path(scratch) / "run")
        machine = Machine(groups, ranks, trial_seconds, files)
        machine.counts = counts
        with JournalWriter.begin(files) as journal:
            files.weights_directory.mkdir()
            replay, config = Replay(), _config()
            seed = resolve_seed(config.seed_architecture, (3, config.data.size, config.data.size), 1000)
            opened = Opened(VERSION, "run", "0", "code", config, graph_to_json(seed))
            journal.write(0.0, opened)
            replay.add(0.0, opened)
            jobs = Jobs.of(config, seed, replay)
            propose = jobs.propose
            jobs.propose = lambda number, group: machine.propose(number, group, propose)  # type: ignore[method-assign]
            ledger = Ledger(journal, replay, jobs, machine)

            def watch(run: Replay, t: float) -> None:
                span = t - run.leg.released if run.leg.released is not None else -1.0
                if span >= 0 and not machine.start_seconds:
                    machine.start_seconds = sum(cost.seconds for cost in machine.costs.values())
                if span > FILLED_SECONDS and not machine.filled:
                    machine.filled = True
                    machine.start()
                if span > span_seconds:
                    master.stop(TERMINATED)

            master = Master(ledger, files, machine, Audience(watch, print))
            profiler = cProfile.Profile()
            machine.start()
            if profile:
                profiler.runcall(master.run, "now", ("aiperf-hpc",))
                pstats.Stats(profiler).sort_stats("tottime").print_stats(30)
            else:
                master.run("now", ("aiperf-hpc",))
        bytes_of = Counter[str]()
        with files.journal.open("rb") as lines:
            for line in lines:
                bytes_of[line.split(b'"type":"', 1)[1].split(b'"', 1)[0].decode()] += len(line)
        return Measured(machine, span_seconds, len(replay.trials), bytes_of)


def _config() -> Config:
    changes = {"ranked": False, "training.format": "bf16", "limits.minutes": 0.0, "limits.max_trials": 10**6}
    return with_overrides(load_preset("ranked"), {**changes, "tuning.name": "none"})


def steady(groups: int, ranks: int, minutes: float, profile: bool) -> None:
    run = measured(groups, ranks, 60 * minutes, lambda number: LONG * (0.5 + number * 0.618034 % 1), profile)
    costs, proposals = run.machine.costs, run.machine.proposals
    heard = ("Steps", "Started", "Validated", "Finished")
    num_messages = sum(costs[kind].messages for kind in heard)
    spent = sum(costs[kind].seconds for kind in (*heard, "wait"))
    of_steps = run.bytes_of["Stepped"] * 3600 / run.span_seconds
    of_trials = sum(run.bytes_of[kind] for kind in ("Dispatched", "Began", "Closed", "Ended"))
    figures = [
        f"{1e6 * spent / max(1, num_messages):6.1f} us a message",
        f"{run.microseconds('Steps'):6.1f} us a block of steps",
        f"{run.microseconds('Finished', 'wait'):6.1f} us an outcome with its dispatch",
        f"{1e3 * proposals.seconds / max(1, proposals.messages):.2f} ms a proposal",
        f"{1e6 * run.machine.start_seconds / groups / ranks:7.1f} us a rank to start",
        f"{of_steps / 1e6:.0f} MB of steps an hour",
        f"{of_trials / run.trials / 1024:.2f} KiB a trial",
        f"{num_messages} messages",
    ]
    print(f"steady    {groups:5} groups of {ranks}: {', '.join(figures)}", flush=True)


def burst(groups: int, profile: bool) -> None:
    run = measured(groups, 1, 2.5 * EQUAL, lambda number: EQUAL, profile)
    microseconds = run.microseconds("Finished")
    print(f"burst     {groups:5} groups: {1e6 / microseconds:,.0f} outcomes a second", flush=True)


def sustained(groups: int, profile: bool) -> None:
    run = measured(groups, 1, 15.0, lambda number: SHORT * (0.5 + number * 0.618034 % 1), profile)
    costs = run.machine.costs
    seconds = sum(cost.seconds for cost in costs.values())
    rate = costs["Finished"].messages / (seconds + run.machine.proposals.seconds)
    print(f"sustained {groups:5} groups: {rate:,.0f} outcomes a second, proposals included", flush=True)


def offered(groups: int, profile: bool) -> None:
    mean = groups / OFFERED - CLOSING_SECONDS
    run = measured(groups, 1, 30.0, lambda number: mean * (0.5 + number * 0.618034 % 1), profile, counts=True)
    delays = quantiles(run.machine.delays, n=100)
    milliseconds = (
        f"{1e3 * delays[49]:.2f} ms in the median, {1e3 * delays[98]:.1f} ms at the 99th percentile"
    )
    rate = len(run.machine.delays) / (run.span_seconds - FILLED_SECONDS)
    print(
        f"offered   {groups:5} groups, {rate:.0f} outcomes a second: the next candidate after {milliseconds}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--groups", default="64,512,4096")
    parser.add_argument("--ranks", type=int, default=1, help="of a group")
    parser.add_argument("--minutes", type=float, default=5.0, help="of the steady run, on the virtual clock")
    parser.add_argument("--only", choices=("steady", "burst", "sustained", "offered"))
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    for groups in map(int, options.groups.split(",")):
        if options.only in (None, "steady"):
            steady(groups, options.ranks, options.minutes, options.profile)
        if options.only in (None, "burst"):
            burst(groups, options.profile)
    if options.only in (None, "sustained"):
        sustained(512, options.profile)
    if options.only in (None, "offered"):
        offered(512, options.profile)


if __name__ == "__main__":
    sys.exit(main())
